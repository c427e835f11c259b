"""Ratios of counts over prompts, such as acceptance: the sum of one count over the sum of another."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ggufspec.domain import Estimate
from ggufspec.stats.estimates import quantile


def ratio_of_sums(
    counts: Mapping[str, float],
    denominators: Mapping[str, float],
    *,
    offset: float = 0.0,
    highest: float = math.inf,
) -> Estimate | None:
    """Return ``offset + Σ counts / Σ of`` with its 95 % interval over prompts.

    Prompts (or conversations) are the units: repeats of one prompt accept much the same, so that they are no
    new information. The standard error leaves out one unit after the other (jackknife: Efron and Tibshirani
    1993, "An Introduction to the Bootstrap", chapter 11; for survey ratios Cochran 1977, "Sampling
    Techniques", section 6.12), with Student's t for units - 1 degrees of freedom.

    Args:
        counts: by prompt or conversation, for example its accepted tokens.
        denominators: the same of what they are a part of, for example its drafted tokens.
        offset: is added to the ratio.
        highest: the largest possible value, where the interval ends; the smallest is ``offset``.

    Returns:
        The estimate; without an interval for a single unit, or where all units agree exactly. None where
        ``denominators`` adds up to 0.
    """
    units = [unit for unit, number in denominators.items() if number > 0]
    above, below = (
        np.array([table[unit] for unit in units], dtype=np.float64) for table in (counts, denominators)
    )
    if not len(units):
        return None
    value = offset + float(above.sum() / below.sum())
    if len(units) < 2:
        return Estimate(value=value, lo=None, hi=None)
    left = (above.sum() - above) / (below.sum() - below)
    error = math.sqrt((len(units) - 1) / len(units) * float(np.sum((left - left.mean()) ** 2)))
    if error <= 1e-12:
        return Estimate(value=value, lo=None, hi=None)
    half = quantile(len(units) - 1) * error
    return Estimate(value=value, lo=max(value - half, offset), hi=min(value + half, highest))
