"""The steps of a conversion that print, ask or download: texts first, then sizes, then weights."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from ggufspec.cli.entry.output import echo, echo_table
from ggufspec.cli.steps import building, hub_access
from ggufspec.llama import progress
from ggufspec.llama.convert import environment
from ggufspec.modelfiles import api, hub
from ggufspec.units import format_bytes

T = TypeVar("T")


def print_needs(models: api.HeadModels, *, is_installed: bool, err: bool) -> None:
    """Print what is downloaded and installed, its size, and the free disk space."""
    rows = [
        [
            f"{item.repo}/{item.file.path}",
            format_bytes(item.file.size_bytes),
            "cached" if item.is_here else "",
        ]
        for survey in models.surveys
        for item in survey.items
    ]
    if rows:
        echo_table(["file", "size", ""], rows, err=err)
    for survey in models.surveys[:1]:
        free = format_bytes(survey.free_bytes)
        echo(f"to download: {format_bytes(models.missing_bytes)}; free at {survey.folder}: {free}", err=err)
    if is_installed:
        echo("converter: installed", err=err)
        return
    download, disk = format_bytes(environment.DOWNLOAD_BYTES), format_bytes(environment.DISK_BYTES)
    echo(f"converter: to install, with PyTorch: about {download} to download, {disk} on the disk", err=err)


def check_consent(models: api.HeadModels, *, is_installed: bool, yes: bool, quiet: bool) -> None:
    """Refuse a download for which a disk has too little space; ask for confirmation of a large one.

    Raises:
        DiskFullError: there is too little space for the weights.
        ConsentNeededError: there is no terminal to ask on.
    """
    for survey in models.surveys:
        hub.check_room(survey)
    packages = 0 if is_installed else environment.DOWNLOAD_BYTES
    hub_access.confirm_bytes(models.missing_bytes + packages, yes=yes, quiet=quiet)


def fetch_weights(models: api.HeadModels, access: hub.Access, *, quiet: bool) -> None:
    """Download what is missing of a head.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    for survey in models.surveys:
        hub_access.show_transfers(hub.fetch_files(survey.items, access), quiet=quiet)


def show(steps: Generator[progress.BuildProgress, None, T], *, quiet: bool) -> T:
    """Run an installation or a conversion with its progress; return what it returns."""
    return building.show_progress(steps, seconds={}, quiet=quiet)[0]
