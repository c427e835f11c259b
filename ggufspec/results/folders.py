"""Find the folders of benches by name; nothing is written here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import structs

from ggufspec import paths
from ggufspec.errors import ResultsError
from ggufspec.results.reading import META

LATEST = "last"
_MOST_BENCHES = 1 << 53  # a larger number is damage
_LONGEST_NAME = 60  # characters of a name in a message


def ids() -> tuple[str, ...]:
    """Return the ids of all stored benches, oldest first.

    Raises:
        ResultsError: the folder of benches cannot be read.
    """
    return tuple(start.name for start in _starts())


def next_number() -> int:
    """Return the number of a new bench: the largest stored number plus one."""
    return 1 + max((start.number for start in _starts()), default=0)


def find_bench(run: str) -> Path:
    """Return the folder of a bench: by its path, its id or the unique beginning of one, or ``last``.

    Raises:
        ResultsError: there is none, or more than one.
    """
    if _is_bench(Path(run)):
        return Path(run)
    known = ids()
    if run == LATEST and known:
        return paths.runs_dir() / known[-1]
    matches = [run] if run in known else [name for name in known if name.startswith(run)]
    if len(matches) == 1:
        return paths.runs_dir() / matches[0]
    if not known:
        raise ResultsError("no bench is stored yet", "run `ggufspec bench` first")
    shown = repr(run if len(run) <= _LONGEST_NAME else f"{run[:_LONGEST_NAME]}…")
    if matches:
        raise ResultsError(
            f"{shown} is the beginning of {len(matches)} runs", f"use a complete id, such as {matches[0]}"
        )
    raise ResultsError(
        f"there is no run {shown}", f"`ggufspec show --list` lists them; the last is {known[-1]}"
    )


class _Start(msgspec.Struct):
    """The sort key of benches; damaged ones come first."""

    number: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BENCHES)] = 0
    started_at: str = ""
    name: str = ""


def _starts() -> list[_Start]:
    """Return the sort keys of all benches, in order."""
    root = paths.runs_dir()
    try:
        folders = [folder for folder in root.iterdir() if _is_bench(folder)] if root.is_dir() else []
    except OSError as error:
        raise ResultsError(
            f"cannot read {root}: {error.strerror}", "set GGUFSPEC_DATA to a folder that can be read"
        ) from error
    return sorted(map(_start, folders), key=lambda start: (start.number, start.started_at, start.name))


def _start(folder: Path) -> _Start:
    try:
        start = msgspec.json.decode((folder / META).read_bytes(), type=_Start)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        start = _Start()
    return structs.replace(start, name=folder.name)


def _is_bench(folder: Path) -> bool:
    """Whether a folder holds a bench; one that is being deleted does not, nor does an invalid name."""
    try:
        return not folder.name.startswith(".") and (folder / META).is_file()
    except (OSError, ValueError):
        return False
