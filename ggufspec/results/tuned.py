"""The file of a tuned configuration: configuration.json in the folder of the bench that confirmed it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ggufspec import paths
from ggufspec.errors import ResultsError
from ggufspec.results import records, seals, store
from ggufspec.results.configuration import CONFIGURATION_VERSION, Configuration
from ggufspec.results.writer import disk, refuse_newer, write_object

_FILE = "configuration.json"


class _FormatHead(msgspec.Struct):
    schema_version: int


def write_configuration(configuration: Configuration, folder: Path) -> Path:
    """Write a configuration into the folder of its bench, in one step, and return its file.

    Raises:
        ResultsError: it cannot be written.
        DiskFullError: the disk is full.
    """
    file = folder / _FILE
    with disk(folder):
        write_object(file, configuration)
    return file


def find_configuration(name: str = store.LATEST) -> Path:
    """Return the file of a tuned configuration.

    Args:
        name: a tuning's id or the unique beginning of one, its folder, a configuration file, or ``last``.

    Raises:
        ResultsError: there is none.
    """
    if Path(name).is_file():
        return Path(name)
    if name == store.LATEST:
        files = (paths.runs_dir() / bench / _FILE for bench in reversed(store.ids()))
        newest = next((file for file in files if file.is_file()), None)
        if newest is None:
            raise ResultsError("nothing is tuned yet", "run `ggufspec tune` first")
        return newest
    folder = store.find_bench(name)
    if not has_configuration(folder):
        raise ResultsError(
            f"the bench {folder.name} has no tuned configuration", "name a bench that `ggufspec tune` made"
        )
    return folder / _FILE


def has_configuration(folder: Path) -> bool:
    """Whether the folder of a bench has a tuned configuration."""
    return (folder / _FILE).is_file()


def read_configuration(name: str = store.LATEST) -> Configuration:
    """Return a stored configuration.

    Args:
        name: as for ``find_configuration``.

    Raises:
        ResultsError: there is none, it was edited or damaged, or a newer ggufspec wrote it.
    """
    file = find_configuration(name)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ResultsError(f"cannot read {file}: {error.strerror}", "check its permissions") from error
    try:
        version = msgspec.json.decode(content, type=_FormatHead).schema_version
        refuse_newer(file, version, CONFIGURATION_VERSION)
        if seals.follow(content, 0) is None:
            raise ResultsError(
                f"{file} does not match its checksum", "it was edited or damaged: restore it, or tune again"
            )
        return msgspec.json.decode(content, type=Configuration, dec_hook=records.decode_hook)
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise ResultsError(
            f"{file} is not a tuned configuration: {error}",
            "it was edited or damaged: restore it, or tune again",
        ) from error
