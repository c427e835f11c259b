"""Progress on standard error: on a terminal a bar, otherwise a few lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ggufspec.cli.entry.output import echo
from ggufspec.harmless import one_line

if TYPE_CHECKING:
    from ggufspec.llama import progress
    from ggufspec.measure import BenchProgress, Deadline
    from ggufspec.modelfiles.hub import TransferProgress
    from ggufspec.results import ResultSet
    from ggufspec.tuning import Stage


T = TypeVar("T")


class Drawing(Protocol):
    """Draws the events of one piece of work."""

    def __enter__(self) -> Self:
        """Begin to draw."""
        ...

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what is not to stay."""
        ...

    def show(self, event: Any) -> None:
        """Draw an event."""
        ...


class Context(Protocol):
    """What a terminal knows beside the events that are drawn.

    Attributes:
        build_seconds: gets the time of each step of a build.
        describe_ended: see ``Terminal``.
    """

    build_seconds: dict[str, float]
    describe_ended: Callable[[ResultSet], str] | None

    def last(self, kind: type[T]) -> T | None:
        """Return the last value of a kind that was shown; None without one."""
        ...


class _Bars:
    """A display of rich that is removed or kept at the end."""

    def __init__(self, *columns: Any, transient: bool) -> None:
        console = Console(stderr=True)
        self.is_plain = not console.is_terminal
        self.bars = Progress(*columns, console=console, transient=transient, disable=self.is_plain)

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()


class Transfers(_Bars):
    """Downloads, each with a bar."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            transient=False,
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, event: TransferProgress) -> None:
        """Draw how far a file is."""
        from ggufspec.modelfiles.hub import TransferState  # a build needs no Hub

        name = event.item.file.path.rpartition("/")[2]
        if name not in self._tasks:
            self._tasks[name] = self.bars.add_task(escape(one_line(name)), total=event.item.file.size_bytes)
        is_usual = event.state in {TransferState.DOWNLOADING, TransferState.DONE}
        state = "" if is_usual else f" ({event.state})"
        note = f": {event.note}" if event.note else ""
        self.bars.update(
            self._tasks[name],
            completed=event.done_bytes,
            description=escape(one_line(f"{name}{state}{note}")),
        )
        if event.note and self.is_plain and event.state is TransferState.WAITING:
            echo(f"{name}: {event.note}", err=True)


class Building(_Bars):
    """A build or a conversion: one bar, or a line for each quarter of a step; notices stay."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__(
            TextColumn("{task.description:9}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            transient=True,
        )
        self._task, self._last_quarter = self.bars.add_task("", total=None), ""
        self._seconds, self._step, self._since = seconds, "", time.monotonic()

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count_seconds("")
        super().__exit__(cls, error, trace)

    def _count_seconds(self, following: str) -> None:
        """Add the seconds of the step until now, and begin the next one."""
        now = time.monotonic()
        if self._step:
            self._seconds[self._step] = self._seconds.get(self._step, 0.0) + now - self._since
        self._step, self._since = following, now

    def show(self, at: progress.BuildProgress) -> None:
        """Draw how far a step is."""
        self._count_seconds(at.step)
        quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
        if at.notice or (self.is_plain and quarter != self._last_quarter):
            echo(at.line if at.notice else quarter, err=True)
        self._last_quarter = quarter
        self.bars.update(self._task, description=at.step, completed=at.done, total=at.total)


class Forecasting(_Bars):
    """The stages of a forecast: one bar with the time left, or a line for each kind of stage."""

    def __init__(self, deadline: Deadline) -> None:
        class LeftColumn(ProgressColumn):
            """How much of the time limit has passed and is left."""

            def render(self, task: Task) -> Text:
                return Text(deadline.describe_left())

        super().__init__(TextColumn("{task.description}"), BarColumn(), LeftColumn(), transient=True)
        self._deadline, self._last_kind = deadline, ""
        self._task = self.bars.add_task("forecasting")

    def show(self, stage: Stage) -> None:
        """Draw a stage; its notes stay."""
        name = one_line(stage.name)
        kind = name.partition(" · ")[0]
        if kind != self._last_kind and self.is_plain:
            echo(f"{kind} · {self._deadline.describe_left()}", err=True)
        self._last_kind = kind
        for note in stage.notes:
            self.bars.print(note, markup=False, highlight=False, soft_wrap=True)
        self.bars.update(self._task, description=escape(name), completed=stage.done, total=stage.total)


def drawing_of(event: object, context: Context) -> Drawing:
    """Return what draws such events, after the first of them."""
    return _DRAWINGS[type(event).__name__](event, context)


def _draw_forecast(first: Stage, context: Context) -> Drawing:
    from ggufspec.measure import NO_DEADLINE, Deadline

    return Forecasting(context.last(Deadline) or NO_DEADLINE)


def _draw_bench(first: BenchProgress, context: Context) -> Drawing:
    from ggufspec.cli.entry.growing import GrowingTable

    return GrowingTable(first, context.describe_ended)


_DRAWINGS: Mapping[str, Callable[[Any, Context], Drawing]] = {
    "TransferProgress": lambda first, context: Transfers(),
    "BuildProgress": lambda first, context: Building(context.build_seconds),
    "Stage": _draw_forecast,
    "BenchProgress": _draw_bench,
}
"""By the name of the class, so that no other command's room is imported."""
