"""Progress on standard error: on a terminal a bar, otherwise a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ggufspec.cli.entry.output import echo
from ggufspec.harmless import one_line

if TYPE_CHECKING:
    from ggufspec.llama import progress
    from ggufspec.modelfiles.hub import TransferProgress


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

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description:9}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            transient=True,
        )
        self._task, self._last_quarter = self.bars.add_task("", total=None), ""

    def show(self, at: progress.BuildProgress) -> None:
        """Draw how far a step is."""
        quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
        if at.notice or (self.is_plain and quarter != self._last_quarter):
            echo(at.line if at.notice else quarter, err=True)
        self._last_quarter = quarter
        self.bars.update(self._task, description=at.step, completed=at.done, total=at.total)


def drawing_of(event: object) -> Drawing:
    """Return what draws such events."""
    return _DRAWINGS[type(event).__name__]()


_DRAWINGS: Mapping[str, Callable[[], Drawing]] = {
    "TransferProgress": Transfers,
    "BuildProgress": Building,
}
