"""What ``fetch`` and ``suggest`` share: surveys, downloads with progress, and the drafter rule."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from ggufspec.cli.entry.output import echo, echo_table
from ggufspec.domain import Pair, Program
from ggufspec.errors import ConsentNeededError, NoInstallError
from ggufspec.harmless import one_line
from ggufspec.modelfiles import hub
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.modelfiles.compat import judging

ASK_ABOVE_BYTES = 10_000_000_000


def print_survey(survey: hub.Survey, *, err: bool) -> None:
    """Print the files of a pair with their sizes, what is cached already, and the free disk space.

    Args:
        survey: of the pair.
        err: print to standard error.
    """
    rows = []
    for item in survey.items:
        size, cached = item.file.size_bytes, item.here_bytes
        state = "cached" if item.is_here else f"{cached / size:.0%} cached" if cached else "to download"
        rows.append([f"{item.repo}/{item.file.path}", format_bytes(size), state])
    rows += [
        [str(model.path), format_bytes(model.size_bytes or 0), "local"]
        for model in (survey.pair.target, survey.pair.draft)
        if model is not None and model.repo is None
    ]
    echo_table(["file", "size", ""], rows, err=err)
    echo(
        f"to download: {format_bytes(survey.missing_bytes)}; "
        f"free at {survey.folder}: {format_bytes(survey.free_bytes)}",
        err=err,
    )


def confirm_download(survey: hub.Survey, *, yes: bool) -> None:
    """Ask for confirmation of a large download.

    Raises:
        ConsentNeededError: there is no terminal to ask on.
    """
    if yes or survey.missing_bytes <= ASK_ABOVE_BYTES:
        return
    if not sys.stdin.isatty():
        raise ConsentNeededError(
            f"the download of {format_bytes(survey.missing_bytes)} needs confirmation", "add --yes"
        )
    click.confirm(f"Download {format_bytes(survey.missing_bytes)}?", abort=True, err=True)


def download_pair(survey: hub.Survey, access: hub.Access, *, quiet: bool) -> Pair:
    """Download what is missing; on a terminal with progress bars."""
    fetching = hub.fetch(survey, access)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal) as bars:
        tasks = {}
        while True:
            try:
                event = next(fetching)
            except StopIteration as end:
                pair: Pair = end.value
                return pair
            name = event.item.file.path.rpartition("/")[2]
            if name not in tasks:
                tasks[name] = bars.add_task(escape(one_line(name)), total=event.item.file.size_bytes)
            state = (
                ""
                if event.state in {hub.TransferState.DOWNLOADING, hub.TransferState.DONE}
                else f" ({event.state})"
            )
            note = f": {event.note}" if event.note else ""
            bars.update(
                tasks[name], completed=event.done_bytes, description=escape(one_line(f"{name}{state}{note}"))
            )
            if event.note and bars.disable and not quiet and event.state is hub.TransferState.WAITING:
                echo(f"{name}: {event.note}", err=True)


def find_rule(engine: str = "binary") -> judging.Rule:
    """Return the installed llama.cpp's rule for drafters; that of the newest if none is installed.

    Args:
        engine: the engine that will measure the pair.
    """
    from ggufspec import engines
    from ggufspec.llama.install import installs
    from ggufspec.modelfiles.compat import judging

    try:
        return judging.rule_of(installs.find_install(), engines.ENGINES[engine])
    except NoInstallError:
        return judging.rule_for(Program.SIMPLE)
