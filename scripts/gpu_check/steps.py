"""Steps under a deadline: what fits is done, what does not is said, what was done stays done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ggufspec.errors import GgufspecError, NoInstallError, OutOfMemoryError

Row = Mapping[str, Any]
DONE, NOT_RUN, FAILED = "done", "not run", "failed"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a figure has to stay within; ``value`` is None where it could not be measured."""

    name: str
    value: float | None
    limit: float
    unit: str = "%"

    @property
    def verdict(self) -> str:
        """Whether it does."""
        if self.value is None:
            return NOT_RUN
        return "met" if abs(self.value) <= self.limit else "missed"


@dataclass(frozen=True, kw_only=True)
class Section:
    """What a step found: a table, sentences about it, the bars, and the ids of the benches behind it.

    ``fault`` says what did not work although the step came to its end; empty where all did.
    """

    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()
    bars: Sequence[Bar] = ()
    benches: Sequence[str] = ()
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to check.

    ``run`` gets the seconds that it may take, ``most_s`` at most; with less than ``least_s`` it is not begun.
    ``closes`` is for what is made of all other steps: it runs in every call, and its time is kept for it.
    """

    name: str
    title: str
    part: int
    least_s: float
    most_s: float
    run: Callable[[float], Section]
    closes: bool = False


@dataclass(frozen=True, kw_only=True)
class Report:
    """How a step ended."""

    name: str
    title: str
    part: int
    status: str
    said: str = ""  # why it was not run, or how it failed
    seconds: float = 0.0
    section: Section = field(default_factory=Section)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Report:
        """Return what ``to_json`` was made of."""
        section = told["section"]
        return cls(
            **{
                **told,
                "section": Section(**{**section, "bars": [Bar(**bar) for bar in section["bars"]]}),
            }
        )


def run(
    steps: Sequence[Step],
    *,
    deadline: float,
    before: Mapping[str, Report],
    save: Callable[[Sequence[Report]], None],
    say: Callable[[str], None] = print,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Report, ...]:
    """Run what is not done yet and fits; a step that fails does not keep the next ones from running.

    Args:
        steps: in the order of their worth.
        deadline: when to be done, on the clock.
        before: reports of an earlier call, by the steps' names; what was done is not done again.
        save: gets all reports so far after every step, so that a kill loses one step at most.
        say: prints a line of progress.
        clock: seconds.
    """
    reports: list[Report] = []
    kept_s = sum(step.least_s for step in steps if step.closes)
    for step in steps:
        known = before.get(step.name)
        left = deadline - clock() - (0 if step.closes else kept_s)
        if known is not None and known.status == DONE and not step.closes:
            reports.append(known)
            say(f"{step.title}: done before")
            continue
        if left < step.least_s:
            said = f"{max(0, left):.0f} s were left, and it needs {step.least_s:.0f}"
            reports.append(_report(step, NOT_RUN, said))
        else:
            say(f"{step.title} … ({left:.0f} s left)")
            reports.append(_ran(step, min(left, step.most_s), clock))
        say(f"{step.title}: {reports[-1].status} {reports[-1].said}".rstrip())
        save(reports)
    return tuple(reports)


def _ran(step: Step, left: float, clock: Callable[[], float]) -> Report:
    begun = clock()

    def elapsed() -> float:
        return clock() - begun

    try:
        section = step.run(left)
    except (NotRunError, OutOfMemoryError, NoInstallError) as error:
        return _report(step, NOT_RUN, str(error), elapsed())
    except GgufspecError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return _report(step, FAILED, f"{error.message}{hint}", elapsed())
    except Exception as error:  # noqa: BLE001  # the other steps are still worth their time
        return _report(step, FAILED, f"{type(error).__name__}: {error}", elapsed())
    return _report(step, FAILED if section.fault else DONE, section.fault, elapsed(), section)


class NotRunError(Exception):
    """This machine has not what a step needs, which is nobody's fault."""


def _report(
    step: Step, status: str, said: str, seconds: float = 0.0, section: Section | None = None
) -> Report:
    return Report(
        name=step.name,
        title=step.title,
        part=step.part,
        status=status,
        said=said,
        seconds=round(seconds, 1),
        section=section or Section(),
    )
