"""How much repeats scatter, and when that is too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ggufspec.stats.cells import Cell, Values, log_rates

UNSTABLE_ABOVE = 0.05
"""Relative spread over repeats from which on a machine counts as unstable.

pyperf warns at a standard deviation of 10 %; half of that, because this spread does not count rare outliers.
"""


def spread(rates: Mapping[Cell, float]) -> float | None:
    """Return the robust relative standard deviation over repeats of the same prompt; None without repeats.

    1.0483 times the median absolute difference between two repeats, over all pairs of all prompts, in
    logarithms (Shamos 1976; Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408). Unlike
    deviations from medians it is not too small where repeats are few.
    """
    return pooled_spread(list(log_rates(rates).values()))


def unstable(rates: Mapping[Cell, float]) -> bool:
    """Return whether repeats scatter by more than ``UNSTABLE_ABOVE``."""
    return (spread(rates) or 0.0) > UNSTABLE_ABOVE


def pooled_spread(groups: Sequence[Values]) -> float | None:
    """Return ``spread`` of groups of logarithms."""
    places = ((group, np.triu_indices(len(group), 1)) for group in groups)
    pairs = np.concatenate([np.zeros(0), *(np.abs(group[one] - group[two]) for group, (one, two) in places)])
    return 1.0483 * float(np.median(pairs)) if len(pairs) else None
