"""One log ratio with its standard error, from independent units, and tests of it against any limit.

A unit is one complete repeat of an interleaved bench, or one session: whatever a repetition of the comparison
would draw anew. Prompts are fixed: a unit is the mean over the same prompts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ggufspec.stats.disturbance import widen
from ggufspec.stats.estimates import t_quantile, t_tail

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
            self,
            units=units,
            error=self.error * math.sqrt(self.units / units),
            degrees=(units - 1) / share,
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
