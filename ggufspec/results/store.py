"""The store: one folder per bench, every run on the disk before the next one starts.

<data>/runs/<id>/meta.json     build, machine, when, with which command line, schema version
                 runs.jsonl    everything that was measured, see records.py; flushed to the disk
                 logs/         untouched output of every run
                 lock          held by the process that writes

A process may be killed at any instant: a folder without meta.json is no bench yet, and what follows the last
end of a line in runs.jsonl was never a run.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ggufspec import paths
from ggufspec.domain import Build, Machine, RunResult
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.results import folders, records
from ggufspec.results.ledger import Ledger
from ggufspec.results.records import JudgedRecord
from ggufspec.results.resultset import SCHEMA_VERSION, Meta, ResultSet
from ggufspec.results.runs import Runs
from ggufspec.results.writer import Lock, Writer, disk, replace_file, sync_folder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def create(
    *,
    engine: str,
    command: tuple[str, ...],
    build: Build,
    machine: Machine,
    doubts: Mapping[str, str],
    name: str | None = None,
    planned_runs: int | None = None,
) -> ResultSet:
    """Make the folder of a new bench and return it as an empty ResultSet that can be appended to.

    Args:
        engine: what measures.
        command: the command line that asked for it.
        build: the llama.cpp that is measured.
        machine: where.
        doubts: names of warnings and their advice.
        name: its id and its folder's name; without it, made of the time.
        planned_runs: how many runs that count make it complete.

    Raises:
        ResultsError: the name cannot be one, or is taken; the folder cannot be written.
        DiskFullError: there is no room for it.
    """
    now = datetime.now(UTC)
    if name is not None and (name == folders.LATEST or not _NAME.fullmatch(name)):
        raise ResultsError(
            f"{name!r} cannot be the name of a bench",
            "use up to 100 letters, digits, '.', '_' and '-', with a letter or digit first",
        )
    meta = Meta(
        id=name or f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        started_at=now.isoformat(timespec="microseconds"),
        engine=engine,
        command=command,
        build=build,
        machine=machine,
        doubts=doubts,
        planned_runs=planned_runs,
    )
    folder = paths.runs_dir() / meta.id
    with disk(folder):
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        with Lock(folder) as lock:
            file = folder / folders.RUNS
            if (folder / folders.META).exists() or (file.exists() and file.stat().st_size):
                raise ResultsError(
                    f"there is a bench {meta.id} already", "resume it, or choose another name for the new one"
                )
            file.touch()
            replace_file(folder / folders.META, records.encode(meta) + b"\n")  # from here on it is a bench
            sync_folder(folder.parent)
    return _view(meta, folder, Writer(file=file, ledger=Ledger(), lock=lock))


def reopen(
    run: str | Path = folders.LATEST, *, build: Build | None = None, machine: Machine | None = None
) -> ResultSet:
    """Return a stored bench to which runs can be appended; what a crash cut short is removed.

    Args:
        run: as for ``load``.
        build: the llama.cpp that is to measure the rest; None does not compare it.
        machine: where the rest is to be measured; None does not compare it.

    Raises:
        ResultsError: there is no such run, it cannot be read, it is being written by another process, an
            older ggufspec wrote it, or the rest would not be comparable.
        DiskFullError: there is no room.
    """
    folder = folders.find(str(run))
    with disk(folder), Lock(folder) as lock:
        meta, ledger, size = folders.read(folder)
        _refuse_other(meta, build, machine)
        writer = Writer(file=folder / folders.RUNS, ledger=ledger, lock=lock, size=size)
        writer.append(b"")  # cuts off what a crash left
    return _view(meta, folder, writer)


def append(results: ResultSet, run: RunResult) -> ResultSet:
    """Store one run durably and return the ResultSet of everything that is stored then.

    Raises:
        ResultsError: the ResultSet was loaded, not created or reopened.
        DiskFullError: there is no room; what was stored before stays readable.
    """
    writer = _writer(results)
    _write(writer, writer.ledger.records_of(run))
    writer.ledger.made[len(writer.ledger.runs) - 1] = run
    return _view(results.meta, results.folder, writer)


def judge(results: ResultSet, judged: RunResult) -> ResultSet:
    """Store what was found out later about a run's text, and return the ResultSet that says so.

    Args:
        results: created or reopened.
        judged: the run, found by its log, with its new ``text_identical`` and ``difference``.

    Raises:
        ResultsError: no run of this bench has this log, or the ResultSet was loaded.
        DiskFullError: there is no room.
    """
    writer = _writer(results)
    runs = writer.ledger.runs
    place = next((i for i in reversed(range(len(runs))) if runs[i].log == judged.log), None)
    if place is None:
        raise ResultsError(f"the bench {results.meta.id} has no run with the log {judged.log!r}")
    record = JudgedRecord(run=place, text_identical=judged.text_identical, difference=judged.difference)
    _write(writer, [record])
    return _view(results.meta, results.folder, writer)


def close(results: ResultSet) -> None:
    """Let others write to a bench; it ends by itself with the last ResultSet of it, or the process."""
    if results.writer is not None:
        results.writer.lock.release()


def load(run: str | Path = folders.LATEST) -> ResultSet:
    """Read a stored bench.

    Args:
        run: a run's id or the unique beginning of one, ``last``, or the path of its folder.

    Raises:
        ResultsError: there is no such run, or its files cannot be read.
    """
    folder = folders.find(str(run))
    meta, ledger, _ = folders.read(folder)
    return ResultSet(meta=meta, folder=folder, runs=Runs(ledger))


def _write(writer: Writer, new: Sequence[Any]) -> None:
    """Add records to the file, then to the ledger; where only one was done, nothing more is written."""
    lines = b"".join(records.encode(record) + b"\n" for record in new)
    try:
        with disk(writer.file.parent):
            writer.append(lines)
        writer.ledger.take(new)
    except GgufspecError:  # the disk refused: nothing was added
        raise
    except BaseException:  # Ctrl-C in between
        writer.lock.release()
        raise


def _view(meta: Meta, folder: Path, writer: Writer) -> ResultSet:
    return ResultSet(meta=meta, folder=folder, runs=Runs(writer.ledger), writer=writer)


def _writer(results: ResultSet) -> Writer:
    if results.writer is None or not results.writer.lock.held:
        raise ResultsError(
            f"the bench {results.meta.id} is not open for writing", "open it with results.reopen first"
        )
    return results.writer


def _refuse_other(meta: Meta, build: Build | None, machine: Machine | None) -> None:
    """Raise where runs that are added would not be comparable with those that are there."""
    if meta.schema_version != SCHEMA_VERSION:
        raise ResultsError(
            f"the bench {meta.id} was written by an older ggufspec (schema {meta.schema_version})",
            "it can be read, but not continued: start a new one",
        )
    if build is not None and replace(build, path="") != replace(meta.build, path=""):
        raise ResultsError(
            f"the bench {meta.id} was begun with llama.cpp {meta.build.version} ({meta.build.commit}, "
            f"{meta.build.backend}), and this is {build.version} ({build.commit}, {build.backend})",
            "resume it with the same llama.cpp, or start a new one",
        )
    if machine is not None and _hardware(machine) != _hardware(meta.machine):
        raise ResultsError(
            f"the bench {meta.id} was begun on another machine ({meta.machine.cpu})",
            "resume it there, or start a new one",
        )


def _hardware(machine: Machine) -> tuple[str, int, tuple[str, ...]]:
    return machine.cpu, machine.cores, machine.gpus
