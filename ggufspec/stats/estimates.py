"""Rates and speed-ups over prompts and repeats, each with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ggufspec.stats.cells import Cell, Values, log_rates, log_ratios, middle
from ggufspec.stats.intervals import centre, interval


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; ``lo`` and ``hi`` are None where a single unit tells no spread."""

    value: float
    lo: float | None
    hi: float | None

    @property
    def relative_half_width(self) -> float | None:
        """Half the interval's width over the value, 0.02 for ±2 %; None without an interval."""
        if self.lo is None or self.hi is None or self.value == 0:
            return None
        return (self.hi - self.lo) / 2 / abs(self.value)


def per_prompt(rates: Mapping[Cell, float], baseline: Mapping[Cell, float] | None = None) -> dict[str, float]:
    """Return each prompt's median rate over its repeats (the geometric middle of an even number).

    With a baseline: the same of how many times faster ``rates`` are in the same cell.
    """
    logs = log_rates(rates) if baseline is None else log_ratios(rates, baseline)
    return {prompt: math.exp(middle(of_prompt)) for prompt, of_prompt in logs.items()}


def mean_rate(rates: Mapping[Cell, float]) -> Estimate | None:
    """Return the geometric mean over prompts of the per-prompt medians over repeats.

    Args:
        rates: positive tokens/s of each (prompt, repeat).

    Returns:
        The estimate in tokens/s, or None without any rate. See ``intervals.interval`` for its interval.
    """
    return _estimate(list(log_rates(rates).values()))


def speedup(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> Estimate | None:
    """Return how many times faster ``rates`` are than ``baseline``, paired by prompt and repeat.

    Each prompt's speed-up is the median of its paired ratios; the geometric mean over prompts is the only
    mean of ratios that does not depend on which side is the baseline (Fleming and Wallace 1986, "How not to
    lie with statistics", doi:10.1145/5666.5673). Cells that one side lacks are left out.

    Returns:
        The estimate, or None when no (prompt, repeat) was measured on both sides.
    """
    return _estimate(list(log_ratios(rates, baseline).values()))


def _estimate(groups: Sequence[Values]) -> Estimate | None:
    if not groups:
        return None
    middle, bounds = centre(groups), interval(groups)
    return Estimate(
        value=math.exp(middle),
        lo=None if bounds is None else math.exp(middle - bounds[0]),
        hi=None if bounds is None else math.exp(middle + bounds[1]),
    )
