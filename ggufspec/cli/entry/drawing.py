"""Progress on standard error: on a terminal a bar, otherwise a few lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from ggufspec.cli.entry.output import echo
from ggufspec.harmless import one_line

if TYPE_CHECKING:
    from ggufspec import steps
    from ggufspec.measure import Deadline
    from ggufspec.modelfiles.hub import TransferProgress
    from ggufspec.tuning import Stage

T = TypeVar("T")


@contextmanager
def _start_bars(
    *columns: str | progress.ProgressColumn, transient: bool = True
) -> Iterator[progress.Progress]:
    """Yield a display of rich, which draws nothing where there is no terminal."""
    console = Console(stderr=True)
    with progress.Progress(
        *columns, console=console, transient=transient, disable=not console.is_terminal
    ) as bars:
        yield bars


def iterate_with_progress(items: Sequence[T], describe: Callable[[T], str]) -> Iterator[T]:
    """Yield items under a progress bar with the time left. Meanwhile, print to standard error only.

    Args:
        items: the items, in order.
        describe: returns the text beside the bar for an item.
    """
    columns = (progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
    with _start_bars("{task.description}", *columns) as bars:
        task = bars.add_task("", total=len(items))
        for item in items:
            bars.update(task, description=escape(one_line(describe(item))))
            yield item
            bars.advance(task)


@contextmanager
def draw_transfers() -> Iterator[Callable[[TransferProgress], None]]:
    """Draw downloads, each with a bar."""
    from ggufspec.modelfiles.hub import TransferState  # a build needs no Hub

    tasks: dict[str, progress.TaskID] = {}
    with _start_bars(
        "{task.description}",
        progress.BarColumn(bar_width=None),
        progress.DownloadColumn(binary_units=True),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        transient=False,
    ) as bars:

        def show(event: TransferProgress) -> None:
            name = event.item.file.path.rpartition("/")[2]
            if name not in tasks:
                tasks[name] = bars.add_task(escape(one_line(name)), total=event.item.file.size_bytes)
            is_usual = event.state in {TransferState.DOWNLOADING, TransferState.DONE}
            state = "" if is_usual else f" ({event.state})"
            note = f": {event.note}" if event.note else ""
            described = escape(one_line(f"{name}{state}{note}"))
            bars.update(tasks[name], completed=event.done_bytes, description=described)
            if event.note and bars.disable and event.state is TransferState.WAITING:
                echo(f"{name}: {event.note}", err=True)

        yield show


@contextmanager
def draw_build(
    first: steps.BuildProgress, seconds: dict[str, float]
) -> Iterator[Callable[[steps.BuildProgress], None]]:
    """Draw a build or a conversion: one bar, or a line for each quarter of a step; notices stay.

    Args:
        first: where it begins.
        seconds: gets the time of each step.
    """
    step, since_s, last_quarter = first.step.value, time.monotonic(), ""
    with _start_bars(
        progress.TextColumn("{task.description:9}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(elapsed_when_finished=True),
    ) as bars:
        task = bars.add_task("", total=None)

        def count_seconds(following: str) -> None:
            nonlocal step, since_s
            now_s = time.monotonic()
            seconds[step] = seconds.get(step, 0.0) + now_s - since_s
            step, since_s = following, now_s

        def show(at: steps.BuildProgress) -> None:
            nonlocal last_quarter
            count_seconds(at.step.value)
            quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
            if at.notice or (bars.disable and quarter != last_quarter):
                echo(at.line if at.notice else quarter, err=True)
            last_quarter = quarter
            bars.update(task, description=at.step, completed=at.done, total=at.total)

        yield show
        count_seconds(step)


@contextmanager
def draw_forecast(deadline: Deadline) -> Iterator[Callable[[Stage], None]]:
    """Draw the stages of a forecast: one bar with the time left, or a line for each kind of stage."""
    last_kind = ""

    class LeftColumn(progress.ProgressColumn):
        """How much of the time limit has passed and is left."""

        def render(self, task: progress.Task) -> Text:
            return Text(deadline.describe_left())

    with _start_bars("{task.description}", progress.BarColumn(), LeftColumn()) as bars:
        task = bars.add_task("forecasting")

        def show(stage: Stage) -> None:
            nonlocal last_kind
            name = one_line(stage.name)
            kind = name.partition(" · ")[0]
            if kind != last_kind and bars.disable:
                echo(f"{kind} · {deadline.describe_left()}", err=True)
            last_kind = kind
            for note in stage.notes:
                bars.print(note, markup=False, highlight=False, soft_wrap=True)
            bars.update(task, description=escape(name), completed=stage.done, total=stage.total)

        yield show
