"""Pure numbers: geometric means over prompts and what repeats say about their certainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of
# Statistical Methods, section 1.3.6.7.2); beyond that the normal quantile is 2 % off at most.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_Z95 = 1.960

Cell = tuple[str, int]
"""One measurement's place: (prompt id, repeat)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; ``lo`` and ``hi`` are None when one repeat says nothing of spread."""

    value: float
    lo: float | None
    hi: float | None


def mean_rate(rates: Mapping[Cell, float]) -> Estimate | None:
    """Return the geometric mean of rates over prompts, with an interval over repeats.

    Args:
        rates: positive tokens/s of each (prompt, repeat); only complete repeats enter the interval.

    Returns:
        The estimate, or None without any rate.
    """
    return _over_repeats({cell: float(np.log(rate)) for cell, rate in rates.items()})


def speedup(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> Estimate | None:
    """Return how many times faster ``rates`` are than ``baseline``, paired by prompt and repeat.

    The ratio of geometric means equals the geometric mean of paired ratios, which is the only mean of
    ratios that does not depend on which side is the baseline (Fleming and Wallace 1986, "How not to lie
    with statistics", doi:10.1145/5666.5673).

    Returns:
        The estimate, or None when no (prompt, repeat) was measured on both sides.
    """
    paired = rates.keys() & baseline.keys()
    return _over_repeats({cell: float(np.log(rates[cell] / baseline[cell])) for cell in paired})


def _over_repeats(logs: Mapping[Cell, float]) -> Estimate | None:
    """Average logarithms over prompts, then over repeats; the repeats' spread gives the interval."""
    if not logs:
        return None
    prompts = sorted({prompt for prompt, _ in logs})
    repeats = sorted({repeat for _, repeat in logs})
    per_repeat = [
        [logs[prompt, repeat] for prompt in prompts]
        for repeat in repeats
        if all((prompt, repeat) in logs for prompt in prompts)
    ]
    if not per_repeat:  # every repeat lost a prompt: the cells that are there still have a mean
        per_prompt = [np.mean([v for (p, _), v in logs.items() if p == prompt]) for prompt in prompts]
        return Estimate(value=float(np.exp(np.mean(per_prompt))), lo=None, hi=None)
    means = np.asarray(per_repeat).mean(axis=1)
    half = _half_width(means)
    centre = float(means.mean())
    return Estimate(
        value=float(np.exp(centre)),
        lo=None if half is None else float(np.exp(centre - half)),
        hi=None if half is None else float(np.exp(centre + half)),
    )


def _half_width(values: NDArray[np.float64] | Sequence[float]) -> float | None:
    """Return half the width of Student's 95 % interval of a mean; None for a single value."""
    n = len(values)
    if n < 2:
        return None
    quantile = _T95[n - 2] if n - 2 < len(_T95) else _Z95
    return float(quantile * np.std(values, ddof=1) / np.sqrt(n))
