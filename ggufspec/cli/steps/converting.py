"""The steps of a conversion that print, ask or download: texts first, then sizes, then weights."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ggufspec.cli.entry.output import echo, echo_table
from ggufspec.cli.steps import building, hub_access
from ggufspec.errors import DiskFullError
from ggufspec.llama import progress
from ggufspec.llama.convert import environment
from ggufspec.modelfiles import api, hub
from ggufspec.units import format_bytes

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Models:
    """The folders of a head and its target, and the repositories that they are copies of.

    Attributes:
        name: of the head, without its owner.
        head: a folder; its weights may still be missing.
        target: a folder with a configuration and a tokenizer.
        surveys: of those that come from the Hub.
    """

    name: str
    head: Path
    target: Path
    surveys: tuple[hub.CheckpointSurvey, ...]


def fetch_texts(head: str, target: str, access: hub.Access) -> Models:
    """Find a head and its target, and download their configurations and tokenizers.

    Raises:
        GgufspecError: one of them is not available, or not in Hugging Face's format.
    """
    folders, surveys = dict[str, Path](), list[hub.CheckpointSurvey]()
    for text, weights in ((head, True), (target, False)):
        folder = api.find_folder(text)
        if folder is None:
            survey = hub.survey_checkpoint(text, access, weights=weights)
            surveys.append(survey)
            hub_access.show_transfers(hub.fetch_files(survey.texts, access), quiet=True)
            folder = survey.place
        folders[text] = folder
    is_remote = bool(surveys) and surveys[0].place == folders[head]
    name = surveys[0].repo.partition("/")[2] if is_remote else folders[head].name
    return Models(name=name, head=folders[head], target=folders[target], surveys=tuple(surveys))


def print_needs(models: Models, *, is_installed: bool, err: bool) -> None:
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
        missing = sum(one.missing_bytes for one in models.surveys)
        free = format_bytes(survey.free_bytes)
        echo(f"to download: {format_bytes(missing)}; free at {survey.folder}: {free}", err=err)
    if is_installed:
        echo("converter: installed", err=err)
        return
    download, disk = format_bytes(environment.DOWNLOAD_BYTES), format_bytes(environment.DISK_BYTES)
    echo(f"converter: to install, with PyTorch: about {download} to download, {disk} on the disk", err=err)


def check_consent(models: Models, *, is_installed: bool, yes: bool, quiet: bool) -> None:
    """Refuse a download for which a disk has too little space; ask for confirmation of a large one.

    Raises:
        DiskFullError: there is too little space for the weights.
        ConsentNeededError: there is no terminal to ask on.
    """
    for survey in models.surveys:
        hub.check_room(survey)
    missing = sum(survey.missing_bytes for survey in models.surveys)
    packages = 0 if is_installed else environment.DOWNLOAD_BYTES
    hub_access.confirm_bytes(missing + packages, yes=yes, quiet=quiet)


def fetch_weights(models: Models, access: hub.Access, *, quiet: bool) -> None:
    """Download what is missing of a head.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    for survey in models.surveys:
        hub_access.show_transfers(hub.fetch_files(survey.items, access), quiet=quiet)


def check_output(out: Path, size_bytes: int) -> None:
    """Refuse a file that would not fit on its disk.

    Raises:
        DiskFullError: the free space is less than what the file may need.
    """
    folder = next(place for place in out.absolute().parents if place.exists())
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise DiskFullError(
            f"{out} may need {format_bytes(size_bytes)}, but {folder} has only {format_bytes(free)} free",
            "free some disk space, or choose another --out",
        )


def show(steps: Generator[progress.BuildProgress, None, T], *, quiet: bool) -> T:
    """Run an installation or a conversion with its progress; return what it returns."""
    return building.show_progress(steps, seconds={}, quiet=quiet)[0]
