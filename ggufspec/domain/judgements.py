"""What was found of a speed-up: the verdict, the figures and the runs behind it, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ggufspec.domain.estimate import Estimate


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
    def is_decided(self) -> bool:
        """Whether there is a finding: faster, slower or the same."""
        return self.verdict.is_finding

    @property
    def pays(self) -> bool:
        """Whether drafting may be recommended: it is faster, and its text is the target's own."""
        return self.verdict is SpeedVerdict.FASTER and not self.text_differs
