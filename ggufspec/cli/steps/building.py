"""A build of llama.cpp: its progress, and what is built where a command needs one."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.llama import progress
from ggufspec.llama.install import Built, installs
from ggufspec.steps import finish

T = TypeVar("T")


def print_build(state: str, built: Built) -> None:
    """Print on standard error which llama.cpp was built."""
    echo(f"{state}: llama.cpp {built.version} ({built.backend})", err=True)


def start_default_build() -> Generator[progress.BuildProgress, None, Built]:
    """Return the build that ``ggufspec build`` makes without options; print why it is for this backend."""
    from ggufspec.llama.build import building

    request, reason = building.choose_default()
    echo(f"backend: {reason}", err=True)
    return building.build(request)


def offer_build() -> None:
    """Where no usable llama.cpp is found, ask on a terminal whether to build it, and do so.

    Without a terminal nothing happens: the error that follows says which command builds one.
    """
    is_asked = sys.stdin is not None and sys.stdin.isatty() and Console(stderr=True).is_terminal
    if verbosity.current(click.get_current_context()).quiet or not is_asked or installs.is_any_found():
        return
    question = "No usable llama.cpp was found. Build it now? It takes some minutes."
    if click.confirm(question, default=True, err=True):
        build_with_progress(start_default_build(), "built")


def build_with_progress(
    steps: Generator[progress.BuildProgress, None, Built],
    state: str,
    *,
    seconds: dict[progress.BuildStep, float] | None = None,
) -> Built:
    """Run a build with its progress, and print what was built.

    Args:
        steps: from ``building.build``.
        state: what is said of the finished build.
        seconds: gets the time of each step.
    """
    built, printed = show_progress(steps, seconds={} if seconds is None else seconds)
    print_build(state, built)
    if built.note and built.note not in printed:
        echo(f"note: {built.note}", err=True)
    return built


def show_progress(
    steps: Generator[progress.BuildProgress, None, T],
    *,
    seconds: dict[progress.BuildStep, float],
    quiet: bool = False,
) -> tuple[T, set[str]]:
    """Run the steps of a build or a conversion with a progress bar on a terminal, otherwise with a few lines.

    Args:
        steps: a generator of progress.
        seconds: gets the time of each step.
        quiet: print nothing.

    Returns:
        What the generator returns, and the notices that were printed.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    plain = not console.is_terminal
    with Bar(*columns, console=console, transient=True, disable=plain or quiet) as bar:
        printed: set[str] = set()
        last_quarter, task = "", bar.add_task("", total=None)
        step, since = progress.BuildStep.WAIT, time.monotonic()

        def count_seconds(following: progress.BuildStep) -> None:
            nonlocal step, since
            now = time.monotonic()
            seconds[step] = seconds.get(step, 0.0) + now - since
            step, since = following, now

        def show(at: progress.BuildProgress) -> None:
            nonlocal last_quarter
            count_seconds(at.step)
            quarter = f"{at.step} {4 * at.done // at.total * 25} %" if at.total else str(at.step)
            if not quiet and (at.notice or (plain and quarter != last_quarter)):
                echo(at.line if at.notice else quarter, err=True)
                printed.add(at.line)
            last_quarter = quarter
            bar.update(task, description=at.step, completed=at.done, total=at.total)

        result = finish(steps, show)
        count_seconds(step)
    return result, printed
