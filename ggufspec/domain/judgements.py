"""Estimated values, what was found of a speed-up, and at which looks a bench decides its verdicts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

_FIRST_LOOK = 4  # repeats; fewer make Student's t too wide to decide anything
_GROWTH = 1.5


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; ``lo`` and ``hi`` are None where nothing shows how it varies.

    ``assumed_spread`` is by how much loads differ (one standard deviation, as a fraction), where they are too
    few to show that and the interval assumes it. None for an interval that follows from measurements alone.
    No verdict follows from an assumed one.
    """

    value: float
    lo: float | None
    hi: float | None
    assumed_spread: float | None = None

    @classmethod
    def around(cls, value: float, half_width: float | None = None) -> Estimate:
        """Return a value with an interval that is as wide on both sides; None for no interval."""
        if half_width is None:
            return cls(value=value, lo=None, hi=None)
        return cls(value=value, lo=value - half_width, hi=value + half_width)

    @classmethod
    def around_log(cls, log: float, half_width: float | None = None) -> Estimate:
        """Return the value of a natural logarithm, with the ends of that one's interval; None for none."""
        if half_width is None:
            return cls.around(math.exp(log))
        return cls(value=math.exp(log), lo=math.exp(log - half_width), hi=math.exp(log + half_width))

    def moved_to(self, value: float, *, scale: float = 1.0) -> Estimate:
        """Return another value; its interval lies around it as this one does, ``scale`` times as wide."""
        if self.lo is None or self.hi is None:
            return Estimate.around(value)
        return Estimate(
            value=value, lo=value - scale * (self.value - self.lo), hi=value + scale * (self.hi - self.value)
        )

    def widened(self, log_error: float, widest: float = math.inf) -> Estimate:
        """Return the ratio with another part of the error of its logarithm; no end is beyond ``widest``.

        Args:
            log_error: half of that part's interval.
            widest: half of the longest interval of the logarithm.
        """
        if self.lo is None or self.hi is None:
            return self
        half = min(math.hypot(math.log(self.hi / self.value), log_error), widest)
        return Estimate(value=self.value, lo=self.value * math.exp(-half), hi=self.value * math.exp(half))

    @property
    def relative_half_width(self) -> float | None:
        """Half the interval's width over the value, 0.02 for ±2 %; None without an interval."""
        if self.lo is None or self.hi is None or self.value == 0:
            return None
        return (self.hi - self.lo) / 2 / abs(self.value)


class SpeedVerdict(StrEnum):
    """What a comparison says of the first arm, seen from the second."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"  # the complete interval lies within the practical threshold
    UNDECIDED = "undecided"  # nothing was found: see SpeedJudgement.missing
    ESTIMATE = "estimate"  # nor was anything: by how much loads differ is assumed, because they are too few

    @property
    def is_finding(self) -> bool:
        """Whether this was found: faster, slower or the same."""
        return self not in (SpeedVerdict.UNDECIDED, SpeedVerdict.ESTIMATE)


class Missing(StrEnum):
    """What an undecided comparison needs."""

    RUNS = "more runs"
    LOADS = "three or more loads of the models"
    QUIET = "a quiet machine"
    FAILURES = "arms that fail alike"


@dataclass(frozen=True, kw_only=True)
class SpeedJudgement:
    """A verdict with what it rests on.

    Attributes:
        verdict: the finding; UNDECIDED and ESTIMATE are none.
        ratio: tokens/s over those of the baseline; None where nothing can be compared. It has no interval
            where that would be too wide to say anything.
        p_value: of no difference; None without an interval.
        degrees: of freedom of the interval (Student's t); None without one.
        family: how many arms with one baseline interval, p and verdict account for: 1 for an arm by itself.
        prompts: distinct prompts that were compared.
        repeats: the most repeats of a prompt.
        loads: independent loads of the models, or repeats where each run had a process of its own.
        runs_done: runs of the whole bench.
        runs_planned: what its plan counts; None where that is not recorded.
        missing: what an undecided comparison needs; empty otherwise.
        needed_repeats: of each prompt, counted from the start, that would probably decide; None where no
            number of repeats would, or the verdict is decided.
        needed_prompts: prompts that would probably decide, where more repeats would not.
        text_differs: whether the arm wrote another text than the target, and no near-tie explains it. Then it
            is never recommended, however fast it is.
    """

    verdict: SpeedVerdict
    ratio: Estimate | None
    p_value: float | None
    prompts: int
    repeats: int
    loads: int
    degrees: float | None = None
    family: int = 1
    runs_done: int = 0
    runs_planned: int | None = None
    missing: tuple[Missing, ...] = ()
    needed_repeats: int | None = None
    needed_prompts: int | None = None
    text_differs: bool = False

    @property
    def factor(self) -> float:
        """The speed-up; 0 where nothing can be compared, which is behind all others."""
        return self.ratio.value if self.ratio else 0.0

    @property
    def is_decided(self) -> bool:
        """Whether there is a finding: faster, slower or the same."""
        return self.verdict.is_finding

    @property
    def pays(self) -> bool:
        """Whether drafting may be recommended: it is faster, and its text is the target's own."""
        return self.verdict is SpeedVerdict.FASTER and not self.text_differs


def schedule_looks(most_repeats: int, least_repeats: int = 1) -> tuple[int, ...]:
    """Return after how many complete repeats a bench is looked at.

    Args:
        most_repeats: the last look.
        least_repeats: no look comes before so many.
    """
    looks = [min(max(_FIRST_LOOK, least_repeats), most_repeats)]
    while looks[-1] < most_repeats:
        looks.append(min(math.ceil(looks[-1] * _GROWTH), most_repeats))
    return tuple(looks)


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """When a bench is looked at, and by how many comparisons its error of 5 % is shared.

    ``comparisons`` is the number of arms that draft, in all blocks. Each block has looks of its own.
    """

    least_repeats: int
    most_repeats: int
    comparisons: int

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many complete repeats there is a look."""
        return schedule_looks(self.most_repeats, self.least_repeats)

    @property
    def tests(self) -> int:
        """By how many tests the error is shared."""
        return len(self.looks) * max(1, self.comparisons)

    def last_look(self, repeats: int) -> int | None:
        """Return the last look that so many complete repeats reach; None before the first one."""
        return max((look for look in self.looks if look <= repeats), default=None)
