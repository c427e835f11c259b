"""Surveys and downloads with progress, for ``fetch`` and for commands that name models."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import TypeVar

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

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo, echo_table
from ggufspec.domain import Pair
from ggufspec.errors import ConsentNeededError
from ggufspec.harmless import one_line
from ggufspec.modelfiles import hub
from ggufspec.options import RunOptions
from ggufspec.steps import finish
from ggufspec.units import format_bytes

T = TypeVar("T")
Asked = TypeVar("Asked", bound=RunOptions)

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


def confirm_download(
    survey: hub.Survey, *, yes: bool, quiet: bool, above_bytes: int = ASK_ABOVE_BYTES
) -> None:
    """Ask for confirmation of a large download.

    Args:
        survey: what is missing.
        yes: do not ask.
        quiet: nothing may be printed.
        above_bytes: ask if more than this is missing.

    Raises:
        ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
    """
    confirm_bytes(survey.missing_bytes, yes=yes, quiet=quiet, above_bytes=above_bytes)


def confirm_bytes(missing_bytes: int, *, yes: bool, quiet: bool, above_bytes: int = ASK_ABOVE_BYTES) -> None:
    """Ask for confirmation of a large download; as ``confirm_download``, of which only the size is known."""
    if yes or missing_bytes <= above_bytes:
        return
    needs = f"the download of {format_bytes(missing_bytes)} needs confirmation"
    if quiet:
        raise ConsentNeededError(f"{needs}; --quiet does not ask", "add --yes")
    if not sys.stdin.isatty():
        raise ConsentNeededError(needs, "add --yes")
    click.confirm(f"Download {format_bytes(missing_bytes)}?", abort=True, err=True)


def fetch_models(asked: Asked) -> Asked:
    """Return options after downloading the models that it names and that are not here.

    Raises:
        ConsentNeededError: the download is large, and there is no terminal to ask on.
        GgufspecError: a model is not found, or cannot be downloaded.
    """
    from ggufspec import measure

    quiet = verbosity.current(click.get_current_context()).quiet
    asked, access = measure.with_head(asked), hub.Access.of(asked)
    surveys = measure.survey_models(measure.list_names(asked), access)
    for survey in surveys.values():
        if survey.missing_bytes:
            if not quiet:
                print_survey(survey, err=True)
            hub.check_room(survey)
            confirm_download(survey, yes=asked.yes, quiet=quiet)
            download_pair(survey, access, quiet=quiet, remember=False)
    return measure.with_models(asked, {text: measure.file_of(survey) for text, survey in surveys.items()})


def download_pair(survey: hub.Survey, access: hub.Access, *, quiet: bool, remember: bool = True) -> Pair:
    """Download what is missing; on a terminal with progress bars.

    Args:
        survey: of the pair.
        access: access to the Hub.
        quiet: print nothing.
        remember: make the pair the default of a bench.
    """
    return show_transfers(hub.fetch(survey, access, remember=remember), quiet=quiet)


def show_transfers(fetching: Generator[hub.TransferProgress, None, T], *, quiet: bool) -> T:
    """Run a download, on a terminal with progress bars; return what it returns.

    Args:
        fetching: a download that reports its progress.
        quiet: print nothing.
    """
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

        def show(event: hub.TransferProgress) -> None:
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

        return finish(fetching, show)


def pin_files(survey: hub.Survey, *, quiet: bool, replace: bool = False) -> None:
    """Pin the files of a catalogue's pair; where that cannot be stored, print a warning.

    Args:
        survey: what was fetched.
        quiet: print no names.
        replace: pin all of them anew.
    """
    from ggufspec.modelfiles import pins

    try:
        pinned = pins.pin_files(survey, replace=replace)
    except OSError as error:
        echo(f"warning: cannot write {pins.user_file()}: {error.strerror}; nothing was pinned", err=True)
        return
    if pinned and not quiet:
        echo(f"pinned in {pins.user_file()}: {', '.join(pinned)}", err=True)
