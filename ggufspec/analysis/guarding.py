"""A guard for continuous integration: is any drafting arm slower than it may be?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from ggufspec import stats
from ggufspec.analysis.comparing import LEAST_SESSIONS, BenchComparison, ComparedArm, Design
from ggufspec.analysis.matching import label_arm
from ggufspec.domain import Role
from ggufspec.errors import InconclusiveError, ResultsError, SlowerError
from ggufspec.units import counted, format_percent

FAIL_ERROR = 0.005
"""The chance that a guard fails although no arm is slower than the limit."""

PASS_ERROR = 0.01
"""The chance that an arm that is slower than the limit is called fast enough."""

_ONE_BENCH = "measure both llama.cpps in one bench: `ggufspec bench --llama OLD --llama NEW`"


class GuardState(StrEnum):
    """What a guard says of an arm."""

    SLOWER = "slower"  # the whole interval lies below the limit
    PASSED = "passed"  # above
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class GuardedRow:
    """An arm with the interval of its test, as ratios of speeds."""

    row: ComparedArm
    lo: float
    hi: float
    state: GuardState
    units: int | None  # repeats, or benches a side, that would probably decide; None where no number would

    @property
    def text(self) -> str:
        """The arm, its ratio and the interval of its test."""
        ratio = self.row.change.ratio.value
        return f"{label_arm(self.row.before.spec).rstrip()}: {ratio:.3f} [{self.lo:.3f}, {self.hi:.3f}]"


@dataclass(frozen=True, kw_only=True)
class Guard:
    """The arms that draft, each tested against the limit; all arms where none drafts."""

    share: float  # by which an arm may be slower
    design: Design
    rows: tuple[GuardedRow, ...]

    @property
    def limit(self) -> float:
        """The smallest ratio of speeds that is allowed."""
        return 1 - self.share


def is_testable(compared: BenchComparison) -> bool:
    """Whether ``guard`` can test the arms."""
    return compared.no_verdict is None and all(row.change.effect is not None for row in compared.rows)


def guard(compared: BenchComparison, share: float) -> Guard:
    """Test whether arms are slower by more than a share; see ``stats.judge_limits`` for the procedure.

    Raises:
        ResultsError: two engines were compared, so nothing can be called slower.
        InconclusiveError: how much sessions differ is not known, what disturbed the runs cannot be told, or a
            single repeat was measured.
    """
    if compared.no_verdict and not compared.same_engine:
        raise ResultsError(compared.no_verdict, "compare benches of one engine, or leave --fail-slower out")
    if compared.design is Design.SINGLE:
        raise InconclusiveError(
            f"{compared.before} and {compared.after} are single sessions: a guard cannot tell a slower build "
            "from a slower moment",
            f"{_ONE_BENCH}, or compare at least {LEAST_SESSIONS} benches a side",
        )
    if compared.no_verdict:
        raise InconclusiveError(compared.no_verdict, "remove the cause, and measure again on a quiet machine")
    rows = [row for row in compared.rows if row.before.role is Role.DRAFTING] or [*compared.rows]
    effects = [row.change.effect for row in rows if row.change.effect is not None]
    if len(effects) < len(rows):
        raise InconclusiveError("one repeat shows no spread", "measure at least three: --repeats 3")
    tests = stats.judge_limits(effects, math.log1p(-share), fail_error=FAIL_ERROR, pass_error=PASS_ERROR)
    return Guard(
        share=share,
        design=compared.design,
        rows=tuple(
            GuardedRow(
                row=row, lo=math.exp(test.lo), hi=math.exp(test.hi), state=_state(test), units=test.units
            )
            for row, test in zip(rows, tests, strict=True)
        ),
    )


def _state(test: stats.LimitTest) -> GuardState:
    if test.is_below:
        return GuardState.SLOWER
    return GuardState.PASSED if test.is_above else GuardState.UNDECIDED


def raise_if_slower(guarded: Guard) -> None:
    """Raise unless every arm has passed.

    Raises:
        SlowerError: an arm is slower by more than the share; names the slowest.
        InconclusiveError: none is, and some are undecided; says how many more runs would decide.
    """
    slower = [row for row in guarded.rows if row.state is GuardState.SLOWER]
    undecided = [row for row in guarded.rows if row.state is GuardState.UNDECIDED]
    if slower:
        worst = min(slower, key=lambda row: row.row.change.ratio.value)
        raise SlowerError(
            f"{len(slower)} of {counted(len(guarded.rows), 'row')} slower by more than "
            f"{format_percent(guarded.share)}, most of all {worst.text}",
            "`ggufspec bisect` finds the version at which that happened",
        )
    if undecided:
        nearest = min(undecided, key=lambda row: row.row.change.ratio.value)
        raise InconclusiveError(
            f"{len(undecided)} of {counted(len(guarded.rows), 'row')} undecided at a limit of "
            f"{format_percent(guarded.share)}, most of all {nearest.text}",
            _advice(guarded, undecided),
        )


def _advice(guarded: Guard, undecided: list[GuardedRow]) -> str:
    if any(row.row.change.is_disturbed for row in undecided):
        return "other programs slowed the runs by more than all else that varies: measure on a quiet machine"
    unit = "repeat" if guarded.design is Design.INTERLEAVED else "bench"
    needed = [row.units for row in undecided]
    most = max((units for units in needed if units is not None), default=None)
    if most is None or None in needed:
        return f"an arm is so near the limit that 1,000 {unit}s would not decide: choose another limit"
    if unit == "repeat":
        return f"about {most} repeats in all would decide: continue the bench with --resume and -r {most}"
    return f"about {most} benches a side would decide"
