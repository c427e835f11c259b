"""What repeats with other loads would show: comparisons of two arms on given prompts, and percentiles.

In a comparison, each load (or repeat, where each run has a process of its own) is one value, the mean of the
log ratios over the prompts; Student's t gives the interval of their mean. Where prompts differ in their
ratio, it is narrower than that of ``paired_effect``, which is for other prompts of their kind as well.

With several tests, it is a confidence sequence: intervals of several arms that hold together at every planned
look at a growing bench. The looks are fixed beforehand and come after complete repeats only. The error is
divided equally among looks and arms (Bonferroni), so that stopping at any look keeps it.
``scripts/validate_stopping.py`` simulates it.

A ``LogEffect`` is one log ratio with its standard error, from independent units, which is tested against any
limit. A unit is one complete repeat of an interleaved bench, or one session: whatever a repetition of the
comparison would draw anew. Prompts are fixed: a unit is the mean over the same prompts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Cell, Values, align
from ggufspec.stats.disturbance import disturbance_error, widen
from ggufspec.stats.effects import (
    MIN_LOADS,
    Effect,
    Gap,
    cell_means,
    group_repeats,
    is_constant,
    paired_effect,
)
from ggufspec.stats.estimates import quantile, t_quantile, t_tail

_MOST_UNITS = 1000


@dataclass(frozen=True, kw_only=True)
class LogEffect:
    """A difference of logarithms with its standard error and Student's degrees of freedom.

    ``error`` and ``degrees`` are of the units, ``units`` is how many independent ones each side has.
    ``disturbance`` is what other programs may have added to the value (see ``stats.disturbance_error``),
    which more units do not take away.
    """

    value: float
    error: float
    degrees: float
    units: int
    disturbance: float = 0.0

    @property
    def total(self) -> tuple[float, float]:
        """The standard error with the disturbance, and its degrees of freedom."""
        return widen(self.error, self.degrees, self.disturbance)

    def interval(self, lower_tail: float, upper_tail: float) -> tuple[float, float]:
        """Return an interval that misses the truth below and above with these chances."""
        error, degrees = self.total
        return (
            self.value - t_quantile(lower_tail, degrees) * error,
            self.value + t_quantile(upper_tail, degrees) * error,
        )

    def p_below(self, limit: float) -> float:
        """Return the chance of so small a value, if the truth is the limit."""
        return self._tail(limit - self.value)

    @property
    def p_value(self) -> float:
        """The chance of a value so far from zero on either side, if the truth is zero."""
        return min(1.0, 2 * self._tail(abs(self.value)))

    def with_units(self, units: int) -> LogEffect:
        """Return what so many units would probably give: the same value with a smaller error."""
        share = (self.units - 1) / self.degrees if self.degrees else 1.0
        return replace(
            self, units=units, error=self.error * math.sqrt(self.units / units), degrees=(units - 1) / share
        )

    def _tail(self, distance: float) -> float:
        error, degrees = self.total
        if error == 0:
            return 0.5 if distance == 0 else float(distance < 0)
        return t_tail(distance / error, degrees)


def pair_units(differences: Sequence[float]) -> LogEffect | None:
    """Return the mean of paired differences (Student's t); None with fewer than two."""
    count = len(differences)
    if count < 2:
        return None
    values = np.asarray(differences, dtype=np.float64)
    error = float(values.std(ddof=1)) / math.sqrt(count)
    return LogEffect(value=float(values.mean()), error=error, degrees=count - 1, units=count)


def compare_units(after: Sequence[float], before: Sequence[float]) -> LogEffect | None:
    """Return the difference of the means of two samples; None where a side has fewer than two.

    Welch's t with Satterthwaite's degrees of freedom (Welch 1947, Biometrika 34:28-35).
    """
    if min(len(after), len(before)) < 2:
        return None
    parts = [float(np.var(side, ddof=1)) / len(side) for side in (after, before)]
    total = sum(parts)
    degrees = (
        total**2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, (after, before), strict=True))
        if total
        else len(after) + len(before) - 2
    )
    return LogEffect(
        value=float(np.mean(after) - np.mean(before)),
        error=math.sqrt(total),
        degrees=degrees,
        units=min(len(after), len(before)),
    )


@dataclass(frozen=True, kw_only=True)
class LimitTest:
    """A log ratio against a lower limit: ``lo`` and ``hi`` are the interval that decided.

    The ratio is below where ``hi`` is below the limit, not below where ``lo`` is above it, undecided where
    the limit is between. ``units`` is how many units would probably decide; None where no number would.
    """

    lo: float
    hi: float
    is_below: bool
    is_above: bool
    units: int | None


def judge_limits(
    effects: Sequence[LogEffect], limit: float, *, fail_error: float, pass_error: float
) -> tuple[LimitTest, ...]:
    """Test several log ratios against a lower limit, each on one side at a time.

    That a ratio is below is tested by Holm's procedure: with a chance of ``fail_error`` at most, any ratio at
    or above the limit is called below it (Holm 1979, Scandinavian Journal of Statistics 6:65-70). An upper
    end has the level at which Holm's procedure tested its ratio, so that the interval and the test agree.
    That a ratio is above is tested at ``pass_error`` each: all of them have to be, so that no adjustment is
    due (Berger 1982, Technometrics 24:295-300).
    """
    order = sorted(range(len(effects)), key=lambda index: effects[index].p_below(limit))
    tails: dict[int, float] = {}
    is_rejecting = True
    tail = fail_error
    for rank, index in enumerate(order):
        if is_rejecting:
            tail = fail_error / (len(effects) - rank)
            is_rejecting = effects[index].p_below(limit) < tail
        tails[index] = tail
    tests = []
    for index, effect in enumerate(effects):
        lo, hi = effect.interval(pass_error, tails[index])
        units = _units_needed(effect, limit, fail_tail=fail_error / len(effects), pass_tail=pass_error)
        tests.append(LimitTest(lo=lo, hi=hi, is_below=hi < limit, is_above=lo > limit, units=units))
    return tuple(tests)


def _units_needed(effect: LogEffect, limit: float, *, fail_tail: float, pass_tail: float) -> int | None:
    """Return with how many units an interval around the same value would leave the limit out."""

    def decides(units: int) -> bool:
        lo, hi = effect.with_units(units).interval(pass_tail, fail_tail)
        return lo > limit or hi < limit

    choices = range(effect.units, _MOST_UNITS + 1)
    index = bisect_left(choices, True, key=decides)  # intervals only become narrower
    return choices[index] if index < len(choices) else None


LEAST_BEYOND = 10
"""Values that must lie beyond a percentile on each side; with fewer, single requests decide it."""

FEW_BEYOND = 60
"""Values beyond a percentile below which a note says that few of them decide it: 3 loads have 20 each."""

_LEAST_SHARE = 0.5  # of the prompts, in a load that counts


def fixed_effect(
    rates: Mapping[Cell, float], baseline: Mapping[Cell, float], *, tests: int = 1
) -> Effect | None:
    """Compare two arms on these prompts, paired by prompt and repeat.

    Args:
        rates: positive tokens/s of each (prompt, repeat).
        baseline: the same of the other arm. Cells that one side lacks are left out.
        tests: how many intervals are to hold together (Bonferroni); ``p_value`` is multiplied by it, so that
            the interval excludes 1 exactly where it is below 0.05.

    Returns:
        The comparison, or None when no cell was measured on both sides.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    effect = paired_effect(rates, baseline)
    if effect is None or effect.gap is Gap.NOT_INTERLEAVED:
        return effect
    units = compare_loads(rates, baseline)
    if units is None:
        return effect.without_interval(Gap.SINGLE)
    if is_constant(units.error, units.value):
        return effect.without_interval(Gap.EQUAL)
    error, degrees = units.total
    return replace(effect, mean=units.value, error=error, degrees=degrees, gap=None, tests=tests)


def compare_loads(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> LogEffect | None:
    """Return the mean log ratio over the loads (or repeats) of these prompts; None with fewer than two."""
    first, second = align(rates, baseline)
    groups, _ = group_repeats(first, second)
    logs = np.log(first.table) - np.log(second.table)
    means, _ = cell_means(logs, range(len(logs)), groups)
    units = pair_units(mean_of_loads(means))
    return None if units is None else replace(units, disturbance=disturbance_error(first, second))


def mean_of_loads(logs: Values) -> list[float]:
    """Return the mean over prompts of each load that has at least half of them.

    Each prompt is seen from its own mean over the loads, so that a missing prompt does not look like a
    difference between loads.

    Args:
        logs: log ratios, shape (prompts, loads); NaN where a cell is missing.
    """
    kept = logs[~np.isnan(logs).all(axis=1)]
    present = ~np.isnan(kept)
    values = np.where(present, kept, 0.0)
    means = values.sum(axis=1) / present.sum(axis=1)
    apart = np.where(present, kept - means[:, None], 0.0).sum(axis=0)
    counts = present.sum(axis=0)
    counted = counts >= _LEAST_SHARE * len(kept)
    return [float(value) for value in means.mean() + apart[counted] / counts[counted]]


def percentile_over_loads(values: Sequence[ArrayLike], percent: float) -> Estimate | None:
    """Return a percentile of all values together, with its 95 % interval over loads.

    Requests of one load share its memory layout and its neighbours in time, so loads are the units: the
    standard error of the logarithm follows from the percentiles of each load around that of all (sectioning:
    Asmussen and Glynn 2007, "Stochastic Simulation", section III.5), with Student's t for loads - 1 degrees
    of freedom. Leaving out one load after the other, a jackknife, holds in 92 % with 60 values beyond.

    Args:
        values: seconds of each load's requests, 0 or more; loads without any are left out.
        percent: from 0 to 100, ends excluded.

    Returns:
        The estimate; without an interval for fewer than three loads, where all loads agree exactly, or where
        the percentile of one of them is 0. None with fewer than ten values beyond the percentile on
        either side.
    """
    loads = [load for load in (np.asarray(of_load, dtype=np.float64) for of_load in values) if load.size]
    pooled = np.concatenate(loads) if loads else np.empty(0)
    if len(pooled) * min(percent, 100 - percent) / 100 < LEAST_BEYOND:
        return None
    value = float(np.percentile(pooled, percent))
    if len(loads) < MIN_LOADS or value <= 0:
        return Estimate.around(value)
    of_loads = np.array([np.percentile(load, percent) for load in loads])
    if of_loads.min() <= 0:  # tokens that arrive together are 0 s apart, and 0 has no logarithm
        return Estimate.around(value)
    error = math.sqrt(float(np.mean(np.log(of_loads / value) ** 2)) / (len(loads) - 1))
    if error <= 1e-12:
        return Estimate.around(value)
    half = quantile(len(loads) - 1) * error
    return Estimate(value=value, lo=value * math.exp(-half), hi=value * math.exp(half))
