"""How much repeats scatter, when that is too much, and whether groups differ by more than that."""

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
    pairs_of = {size: np.triu_indices(size, 1) for size in {len(group) for group in groups}}
    pairs_of_groups = ((group, pairs_of[len(group)]) for group in groups)
    pairs = np.concatenate(
        [np.zeros(0), *(np.abs(group[first] - group[second]) for group, (first, second) in pairs_of_groups)]
    )
    return 1.0483 * float(np.median(pairs)) if len(pairs) else None


def p_of_equal_groups(logs: Values) -> float | None:
    """Return the chance of groups that differ as much if all of them had the same mean: an F test.

    Repeats are blocks: what changes all groups of a repeat alike is no part of the error.

    Args:
        logs: mean logarithm of each group in each repeat, shape (groups, repeats), without gaps.

    Returns:
        The chance, 0 to 1; None with fewer than two groups or repeats, or where repeats do not scatter.
    """
    groups, repeats = logs.shape
    if groups < 2 or repeats < 2:
        return None
    of_groups = logs.mean(axis=1, keepdims=True)
    left = logs - of_groups - logs.mean(axis=0, keepdims=True) + logs.mean()
    degrees = groups - 1, (groups - 1) * (repeats - 1)
    residual = float(np.sum(left**2)) / degrees[1]
    if residual <= 1e-18:  # rounding alone
        return None
    from scipy import special

    square = repeats * float(np.sum((of_groups - logs.mean()) ** 2)) / degrees[0]
    return float(special.fdtrc(*degrees, square / residual))
