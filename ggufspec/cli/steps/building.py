"""The progress of a build of llama.cpp."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ggufspec.cli.entry.output import echo
from ggufspec.llama import progress
from ggufspec.llama.install import Built


def print_build(state: str, built: Built) -> None:
    """Print on standard error which llama.cpp was built."""
    echo(f"{state}: llama.cpp {built.version} ({built.backend})", err=True)


def build_with_progress(steps: Generator[progress.BuildProgress, None, Built], state: str) -> Built:
    """Run a build with a progress bar on a terminal, otherwise with a few lines."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    quiet = not console.is_terminal
    with closing(steps), Bar(*columns, console=console, transient=True, disable=quiet) as bar:
        printed: set[str] = set()
        last_quarter, task = "", bar.add_task("", total=None)
        while True:
            try:
                at = next(steps)
            except StopIteration as end:
                built: Built = end.value
                break
            quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
            if at.notice or (quiet and quarter != last_quarter):
                echo(at.line if at.notice else quarter, err=True)
                printed.add(at.line)
            last_quarter = quarter
            bar.update(task, description=at.step, completed=at.done, total=at.total)
    print_build(state, built)
    if built.note and built.note not in printed:
        echo(f"note: {built.note}", err=True)
    return built
