"""How many more runs a requested precision needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ggufspec.stats.cells import Cell, log_ratios
from ggufspec.stats.intervals import interval, t95
from ggufspec.stats.spread import pooled_spread

_MOST_REPEATS = 1000
_MOST_PROMPTS = 100_000


@dataclass(frozen=True, kw_only=True)
class Needed:
    """The size of a bench that reaches a precision: repeats of its prompts, or else more prompts.

    Both count from the start, not on top. ``repeats`` is None where no number of repeats would do, because
    the speed-up differs too much from prompt to prompt (or because a single repeat cannot tell); ``prompts``
    then says how many, repeated as often as now. Both are None where nothing can be said.
    """

    repeats: int | None
    prompts: int | None


def needed(rates: Mapping[Cell, float], baseline: Mapping[Cell, float], *, precision: float) -> Needed:
    """Estimate what brings the speed-up's relative half width down to ``precision`` (0.02 for ±2 %).

    The variance between prompts' medians is what prompts differ by plus what repeats leave over; the second
    is known from the repeats, the first is the rest (one-way random effects: Searle, Casella and McCulloch
    1992, "Variance Components", chapter 3). The present interval is scaled by how the sum shrinks.
    """
    groups = list(log_ratios(rates, baseline).values())
    reach = interval(groups) if groups else None
    if reach is None:
        return Needed(repeats=None, prompts=None)
    present = (reach[0] + reach[1]) / 2
    requested = math.asinh(precision)
    repeats = max(map(len, groups))
    if present <= requested:
        return Needed(repeats=repeats, prompts=None)
    if len(groups) == 1:
        unit = present / _students_width(repeats)
        more = (n for n in range(repeats, _MOST_REPEATS + 1) if unit * _students_width(n) <= requested)
        return Needed(repeats=next(more, None), prompts=None)
    known = (pooled_spread(groups) or 0.0) ** 2
    left = known * float(np.mean([_median_variance(len(group)) for group in groups]))
    total = max(float(np.var([np.median(group) for group in groups], ddof=1)), left)
    for between in _differences(total, left, len(groups)):
        within = (total - between) / _median_variance(repeats)
        allowed = total * (requested / present) ** 2 - between
        if within > 0 and (more_repeats := _repeats_for(allowed / within, repeats)) is not None:
            return Needed(repeats=more_repeats, prompts=None)
    unit = present / _students_width(len(groups))
    prompts = (n for n in range(len(groups), _MOST_PROMPTS + 1) if unit * _students_width(n) <= requested)
    return Needed(repeats=None, prompts=next(prompts, None))


def _differences(total: float, left: float, prompts: int) -> tuple[float, float]:
    """Return the variance that prompts differ by: as estimated, and the least that chance leaves plausible.

    Repeats are given up for new prompts only where even the least is too much. It is the estimate less 1.645
    standard deviations of the sample variance of noisy values (a noncentral chi-squared: Johnson, Kotz and
    Balakrishnan 1995, "Continuous Univariate Distributions" 2, chapter 29).
    """
    estimated = total - left
    margin = 1.645 * math.sqrt((2 * left**2 + 4 * estimated * left) / (prompts - 1))
    return estimated, max(estimated - margin, 0.0)


def _students_width(n: int) -> float:
    return t95(n - 1) / math.sqrt(n)


def _repeats_for(variance: float, present: int) -> int | None:
    return next((n for n in range(present, _MOST_REPEATS + 1) if _median_variance(n) <= variance), None)


def _median_variance(n: int) -> float:
    """Return the variance of the median of n standard normal values, to 3 %.

    π/2n for large n (Cramér 1946, "Mathematical Methods of Statistics", section 28.5), with terms for small n
    that make it exact for one and two values.
    """
    return math.pi / (2 * n + (math.pi - 2) * (1 if n % 2 else 2))
