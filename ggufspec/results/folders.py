"""Finding and reading the folders of benches; nothing is written here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ggufspec import paths
from ggufspec.errors import ResultsError
from ggufspec.results import legacy, records
from ggufspec.results.ledger import Ledger
from ggufspec.results.resultset import SCHEMA_VERSION, Meta
from ggufspec.results.writer import whole_lines

LATEST = "last"
META = "meta.json"
RUNS = "runs.jsonl"
_CHUNK = 1 << 18


def ids() -> tuple[str, ...]:
    """Return the ids of all stored benches, oldest first."""
    root = paths.runs_dir()
    found = [path for path in root.iterdir() if (path / META).is_file()] if root.is_dir() else []
    return tuple(path.name for path in sorted(found, key=lambda path: (_started_at(path), path.name)))


def find(run: str) -> Path:
    """Return the folder of a bench: by its path, its id or the unique beginning of one, or ``last``.

    Raises:
        ResultsError: there is none, or more than one.
    """
    if (Path(run) / META).is_file():
        return Path(run)
    known = ids()
    if run == LATEST and known:
        return paths.runs_dir() / known[-1]
    matches = [run] if run in known else [name for name in known if name.startswith(run)]
    if len(matches) == 1:
        return paths.runs_dir() / matches[0]
    if not known:
        raise ResultsError("no bench is stored yet", "run `ggufspec bench` first")
    if matches:
        raise ResultsError(f"{run!r} is the beginning of {len(matches)} runs", f"for example {matches[0]}")
    raise ResultsError(
        f"there is no run {run!r}", f"`ggufspec show --list` lists them; the last is {known[-1]}"
    )


def read(folder: Path) -> tuple[Meta, Ledger, int]:
    """Return what is stored, and how many bytes of runs.jsonl are whole lines.

    Raises:
        ResultsError: it cannot be read, or a newer ggufspec wrote it.
    """
    try:
        meta = msgspec.json.decode((folder / META).read_bytes(), type=Meta, dec_hook=records.decode_hook)
        if meta.schema_version > SCHEMA_VERSION:
            raise ResultsError(
                f"run {meta.id} was written by a newer ggufspec (schema {meta.schema_version})",
                "upgrade ggufspec to read it",
            )
        read_runs = legacy.read if meta.schema_version == 1 else _read_runs
        ledger, size = read_runs(folder / RUNS) if (folder / RUNS).exists() else (Ledger(), 0)
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ResultsError(
            f"cannot read the run in {folder}: {error}", "its files were damaged or edited"
        ) from error
    return meta, ledger, size


def _read_runs(file: Path) -> tuple[Ledger, int]:
    ledger, size, number = Ledger(), 0, 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):  # faster than the whole: it stays in the processor's cache
            lines = whole_lines(chunk + stream.readline())
            found = records.decode(lines, first=number + 1)
            ledger.take(found)
            size += len(lines)
            number += len(found)
    return ledger, size


class _Start(msgspec.Struct):
    started_at: str = ""


def _started_at(folder: Path) -> str:
    """Return when a bench began; damaged ones come first."""
    try:
        return msgspec.json.decode((folder / META).read_bytes(), type=_Start).started_at
    except (OSError, msgspec.MsgspecError):
        return ""
