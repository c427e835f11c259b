"""Ratios of counts over prompts, such as acceptance: the sum of one count over the sum of another."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Values
from ggufspec.stats.estimates import quantile

_SLIGHT = 1e-12  # standard errors below this are rounding, not spread


def ratio_of_sums(
    counts: Mapping[str, float],
    denominators: Mapping[str, float],
    *,
    offset: float = 0.0,
    highest: float | None = None,
) -> Estimate | None:
    """Return ``offset + Σ counts / Σ of`` with its 95 % interval over prompts.

    Prompts (or conversations) are the units: repeats of one prompt accept much the same, so that they are no
    new information. The standard error leaves out one unit after the other (jackknife: Efron and Tibshirani
    1993, "An Introduction to the Bootstrap", chapter 11; for survey ratios Cochran 1977, "Sampling
    Techniques", section 6.12), with Student's t for units - 1 degrees of freedom.

    Args:
        counts: by prompt or conversation, for example its accepted tokens.
        denominators: the same of what they are a part of, for example its drafted tokens.
        offset: is added to the ratio; 0 where there is a ``highest`` value.
        highest: of a share, its largest possible value; the interval is then made on the logit scale.

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
    others = above.sum() - above, below.sum() - below
    if len(units) < 2 or _jackknife_error(others[0] / others[1]) <= _SLIGHT:
        return Estimate(value=value, lo=None, hi=None)
    if highest is None:
        half = quantile(len(units) - 1) * _jackknife_error(others[0] / others[1])
        return Estimate(value=value, lo=max(value - half, offset), hi=value + half)
    middle = float(_logit(above.sum() / highest, below.sum()))
    half = quantile(len(units) - 1) * _jackknife_error(_logit(others[0] / highest, others[1]))
    lo, hi = (highest / (1 + math.exp(-logit)) for logit in (middle - half, middle + half))
    return Estimate(value=value, lo=min(lo, value), hi=max(hi, value))


def _jackknife_error(left: Values) -> float:
    """Return the standard error of a figure from its values without one unit after the other."""
    return math.sqrt((len(left) - 1) / len(left) * float(np.sum((left - left.mean()) ** 2)))


def _logit(counts: Values, of: Values) -> Values:
    """Return the empirical logit, which is finite at 0 and 1 (Haldane 1956, Annals of Human Genetics 20:309).

    Few prompts that accept nearly everything have a symmetric interval that ends at 1 and misses what lies
    below: of 4 prompts at 95 %, it holds in 88 %, and this one in 95 %.
    """
    return np.asarray(np.log((counts + 0.5) / (of - counts + 0.5)))
