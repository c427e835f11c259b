"""ResultSet and its store: one folder per bench, one line per run, on disk before the next run starts.

<data>/runs/<run id>/meta.json     build, machine, when, with which command line, schema version
                     runs.jsonl    one RunResult per line, flushed to the disk
                     logs/         untouched output of every run
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ggufspec import paths
from ggufspec.domain import Build, Machine, RunResult
from ggufspec.errors import DiskFullError, ResultsError

SCHEMA_VERSION = 1
LATEST = "last"


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What all runs of one bench share. ``doubts`` maps the names of warnings to their advice."""

    id: str
    started_at: str  # ISO 8601, UTC
    engine: str
    command: tuple[str, ...]  # ggufspec's own command line
    build: Build
    machine: Machine
    doubts: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """The runs of one bench, in the order in which they were made."""

    meta: Meta
    folder: Path
    runs: tuple[RunResult, ...] = ()

    @property
    def measured(self) -> tuple[RunResult, ...]:
        """The runs that are no warm-ups."""
        return tuple(run for run in self.runs if not run.warmup)


def create(
    *, engine: str, command: tuple[str, ...], build: Build, machine: Machine, doubts: Mapping[str, str]
) -> ResultSet:
    """Make the folder of a new bench and return it as an empty ResultSet.

    Raises:
        DiskFullError: there is no room for it.
    """
    now = datetime.now(UTC)
    meta = Meta(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        started_at=now.isoformat(timespec="seconds"),
        engine=engine,
        command=command,
        build=build,
        machine=machine,
        doubts=doubts,
    )
    folder = paths.runs_dir() / meta.id
    with _disk(folder):
        (folder / "logs").mkdir(parents=True)
        _append(folder / "meta.json", _encode(meta))
    return ResultSet(meta=meta, folder=folder)


def append(results: ResultSet, run: RunResult) -> ResultSet:
    """Store one run durably and return the ResultSet that contains it.

    Raises:
        DiskFullError: there is no room; what was stored before stays readable.
    """
    with _disk(results.folder):
        _append(results.folder / "runs.jsonl", _encode(run))
    return ResultSet(meta=results.meta, folder=results.folder, runs=(*results.runs, run))


def load(run: str | Path = LATEST) -> ResultSet:
    """Read a stored bench.

    Args:
        run: a run's id or the unique beginning of one, ``last``, or the path of its folder.

    Raises:
        ResultsError: there is no such run, or its files cannot be read.
    """
    folder = _folder(str(run))
    try:
        meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=Meta, dec_hook=_decode_hook)
        if meta.schema_version > SCHEMA_VERSION:
            raise ResultsError(
                f"run {meta.id} was written by a newer ggufspec (schema {meta.schema_version})",
                "upgrade ggufspec to read it",
            )
        runs = tuple(_read_runs(folder / "runs.jsonl"))
    except (OSError, msgspec.MsgspecError) as error:
        raise ResultsError(
            f"cannot read the run in {folder}: {error}", "its files were damaged or edited"
        ) from error
    return ResultSet(meta=meta, folder=folder, runs=runs)


def ids() -> tuple[str, ...]:
    """Return the ids of all stored benches, oldest first."""
    root = paths.runs_dir()
    return (
        tuple(sorted(p.name for p in root.iterdir() if (p / "meta.json").is_file())) if root.is_dir() else ()
    )


def _folder(run: str) -> Path:
    if (Path(run) / "meta.json").is_file():
        return Path(run)
    known = ids()
    if run == LATEST and known:
        return paths.runs_dir() / known[-1]
    matches = [name for name in known if name.startswith(run)]
    if len(matches) == 1:
        return paths.runs_dir() / matches[0]
    if not known:
        raise ResultsError("no bench is stored yet", "run `ggufspec bench` first")
    if matches:
        raise ResultsError(f"{run!r} is the beginning of {len(matches)} runs", f"for example {matches[0]}")
    raise ResultsError(
        f"there is no run {run!r}", f"`ggufspec show --list` lists them; the last is {known[-1]}"
    )


def _read_runs(path: Path) -> Iterator[RunResult]:
    """Yield the stored runs; a last line that a crash cut short was never a finished run."""
    if not path.is_file():
        return
    decoder = msgspec.json.Decoder(RunResult, dec_hook=_decode_hook)
    lines = path.read_bytes().split(b"\n")
    for line in lines[:-1]:
        yield decoder.decode(line)


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=_encode_hook)


def _encode_hook(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value).__name__)


def _decode_hook(wanted: type, value: object) -> object:
    if wanted is Path:
        return Path(str(value))
    raise NotImplementedError(wanted.__name__)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """Turn a full disk into its own error."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise ResultsError(
                f"cannot write to {folder}: {error.strerror}", "set GGUFSPEC_DATA to a writable folder"
            ) from error
        raise DiskFullError(
            f"no space left to store results in {folder}", "free some, or set GGUFSPEC_DATA to another disk"
        ) from error
