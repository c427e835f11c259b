"""How much repeats scatter, which of them lie far off, and when that is too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from ggufspec.stats.cells import Cell, Values, log_rates, middle

UNSTABLE_ABOVE = 0.05
"""Relative spread over repeats from which on a machine counts as unstable.

pyperf warns at a standard deviation of 10 %; half of that, because this spread does not count rare outliers.
"""

_FAR = 3.5
_SLIGHT = 1e-9  # differences below this share of the values are rounding, not spread


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Return the indices of values whose modified z-score exceeds 3.5.

    The score is 0.6745 · (value - median) / MAD (Iglewicz and Hoaglin 1993, "How to Detect and Handle
    Outliers", ASQC; NIST/SEMATECH e-Handbook, section 1.3.5.17). Where more than half of the values are
    equal the MAD is 0; the mean absolute deviation from the median, divided by 0.7979, then stands in for
    the MAD over 0.6745. Fewer than three values have none.
    """
    if len(values) < 3:
        return ()
    array = np.asarray(values, dtype=np.float64)
    return _far(array - np.median(array), array)


def outlying_cells(rates: Mapping[Cell, float]) -> tuple[Cell, ...]:
    """Return the cells whose rate lies far from the median of its prompt's repeats, in their own order.

    The modified z-score of logarithms, but with one scale for all prompts (see ``spread``): a few repeats
    of one prompt tell too little of the scale, five normally distributed values have an "outlier" by their
    own MAD in one case of five. Prompts with fewer than three repeats are not judged: of two that differ,
    neither is the odd one.
    """
    scale = spread(rates)
    logs = log_rates(rates)
    middles = {prompt: middle(of_prompt) for prompt, of_prompt in logs.items() if len(of_prompt) >= 3}
    judged = {cell: rate for cell, rate in rates.items() if cell[0] in middles}
    cells = list(judged)
    residuals = np.log(list(judged.values())) - np.array([middles[prompt] for prompt, _ in cells])
    if scale is None or scale <= _SLIGHT:
        return tuple(cells[index] for index in _far(residuals, np.ones(1)))
    return tuple(cell for cell, far in zip(cells, np.abs(residuals) > _FAR * scale, strict=True) if far)


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
    pairs = [abs(one - other) for group in groups for one, other in combinations(group.tolist(), 2)]
    return 1.0483 * float(np.median(pairs)) if pairs else None


def _far(deviations: Values, values: Values) -> tuple[int, ...]:
    sizes = np.abs(deviations)
    if not len(sizes):
        return ()
    slight = _SLIGHT * float(np.abs(values).max())
    scale = float(np.median(sizes)) / 0.6745
    if scale <= slight:
        scale = float(sizes.mean()) / 0.7979
    if scale <= slight:
        return ()
    return tuple(int(index) for index in np.flatnonzero(sizes > _FAR * scale))
