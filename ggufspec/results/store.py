"""The store: one folder per bench, found by name; every run is on the disk before the next one starts.

<data>/runs/<id>/meta.json     build, machine, time, command line, schema version
                 runs.jsonl    all runs, see records.py; flushed to the disk
                 logs/         the unchanged output of every run
                 configuration.json   what a tuning recommends, in the bench that confirmed it
                 crossover.json       the axes of a crossover's map
                 rounds.json          what was expected of its cells; forecast/profiles writes it
                 lock          held by the process that writes

A process may be killed at any moment: a folder without meta.json is not a bench yet, and an incomplete line
at the end of runs.jsonl is not a run. Both files have checksums, see seals.py.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import structs

from ggufspec import paths
from ggufspec.domain import Build, Machine, RunResult
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.options import LoadedBench
from ggufspec.results import reading, records, seals
from ggufspec.results.reading import META
from ggufspec.results.records import JudgedRecord, Ledger
from ggufspec.results.resultset import SCHEMA_VERSION, Meta, ResultSet, Runs
from ggufspec.results.writer import Lock, Writer, disk, write_object
from ggufspec.steps import Sink

LATEST = "last"
_MOST_BENCHES = 1 << 53  # a larger number is damage
_LONGEST_NAME = 60  # characters of a name in a message
_DELETED = ".deleted-"  # prefix of a folder that is being removed
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def ids() -> tuple[str, ...]:
    """Return the ids of all stored benches, oldest first.

    Raises:
        ResultsError: the folder of benches cannot be read.
    """
    return tuple(start.name for start in _starts())


def check_name(name: str) -> str:
    """Return a name for a bench, or for several together.

    Raises:
        ResultsError: it cannot be one.
    """
    if name == LATEST or not _NAME.fullmatch(name):
        raise ResultsError(
            f"{name!r} cannot be the name of a bench",
            "use up to 100 letters, digits, '.', '_' and '-', with a letter or digit first",
        )
    return name


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
    names = ids()
    if run == LATEST and names:
        return paths.runs_dir() / names[-1]
    matches = [run] if run in names else [name for name in names if name.startswith(run)]
    if len(matches) == 1:
        return paths.runs_dir() / matches[0]
    if without_meta := _without_meta(run):
        raise ResultsError(
            f"{without_meta / META} is missing",
            f"`ggufspec show {without_meta.name} --salvage` shows what is left of the bench",
        )
    if not names:
        raise ResultsError("no bench is stored yet", "run `ggufspec bench` first")
    shown = repr(run if len(run) <= _LONGEST_NAME else f"{run[:_LONGEST_NAME]}…")
    if matches:
        raise ResultsError(
            f"{shown} is the beginning of {len(matches)} benches", f"use a complete id, such as {matches[0]}"
        )
    raise ResultsError(
        f"there is no bench {shown}", f"`ggufspec show --list` lists them; the last is {names[-1]}"
    )


def _without_meta(run: str) -> Path | None:
    """Return the folder, by its path or id, of a bench whose meta.json was removed."""
    for folder in (Path(run), paths.runs_dir() / run):
        try:
            is_without = _NAME.fullmatch(folder.name) and not _is_bench(folder)
            if is_without and (folder / reading.RUNS).stat().st_size:
                return folder
        except (OSError, ValueError):
            continue
    return None


class _Start(msgspec.Struct):
    """The sort key of benches; damaged ones come first."""

    number: Annotated[int, msgspec.Meta(ge=0, le=_MOST_BENCHES)] = 0
    started_at: str = ""
    name: str = ""


def _starts() -> list[_Start]:
    """Return the sort keys of all benches, in order."""
    root = paths.runs_dir()
    try:
        folders = [folder for folder in root.iterdir() if _is_bench(folder)]
    except OSError as error:
        if isinstance(error, FileNotFoundError) and paths.broken_link(root) is None:
            return []
        reason, hint = paths.explain(error, root, "GGUFSPEC_DATA")
        raise ResultsError(f"cannot read {root}: {reason}", hint) from error
    return sorted(map(_start, folders), key=lambda start: (start.number, start.started_at, start.name))


def _start(folder: Path) -> _Start:
    start = _Start()
    with suppress(OSError, ValueError):  # msgspec's errors are ValueErrors
        start = msgspec.json.decode((folder / META).read_bytes(), type=_Start)
    return structs.replace(start, name=folder.name)


def _is_bench(folder: Path) -> bool:
    """Whether a folder holds a bench; one that is being deleted does not, nor does an invalid name."""
    try:
        return not folder.name.startswith(".") and (folder / META).is_file()
    except (OSError, ValueError):
        return False


def create(meta: Meta, name: str | None = None) -> ResultSet:
    """Make the folder of a new bench, and return an empty ResultSet for appending.

    Args:
        meta: what its runs share; its id, its start and its number are set here.
        name: the bench's id and folder name; None makes one from the time.

    Raises:
        ResultsError: the name is invalid or in use, or the folder cannot be written.
        DiskFullError: the disk is full.
    """
    now = datetime.now(UTC)
    meta = replace(
        meta,
        id=_free_id(now) if name is None else check_name(name),
        started_at=now.isoformat(timespec="microseconds"),
        number=next_number(),
    )
    folder = paths.runs_dir() / meta.id
    with disk(folder):
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        with Lock(folder) as lock:
            file = folder / reading.RUNS
            if (folder / reading.META).exists() or (file.exists() and file.stat().st_size):
                raise ResultsError(f"the bench {meta.id} already exists", "resume it, or choose another name")
            file.touch()
            write_object(folder / reading.META, meta)  # from here on it is a bench
            paths.sync(folder.parent)
            writer = Writer(file=file, ledger=Ledger(), lock=lock, checksum=seals.start(meta.id))
    return _view(meta, folder, writer)


def _free_id(now: datetime) -> str:
    """Return the time with a random ending: of benches that begin in one second, two may draw the same."""
    while (paths.runs_dir() / (drawn := f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}")).exists():
        pass
    return drawn


def reopen(
    run: str | Path = LATEST, *, build: Build | None = None, machine: Machine | None = None
) -> ResultSet:
    """Open a stored bench for appending; an incomplete line after a crash is removed.

    Args:
        run: as for ``load``.
        build: the llama.cpp for the remaining runs; None does not compare it.
        machine: the machine for the remaining runs; None does not compare it.

    Raises:
        ResultsError: the bench does not exist, cannot be read, is being written by another process, was
            written by an older ggufspec, or further runs would not be comparable.
        DiskFullError: the disk is full.
    """
    folder = find_bench(str(run))
    with disk(folder), Lock(folder) as lock:
        stored = reading.read_bench(folder)
        _check_comparable(stored.meta, build, machine)
        writer = Writer(
            file=folder / reading.RUNS,
            ledger=stored.ledger,
            lock=lock,
            checksum=stored.checksum,
            size=stored.size,
            end=stored.end,
        )
        writer.append(())  # removes what a crash left
    return replace(_view(stored.meta, folder, writer), damage=stored.damage)


def amend(results: ResultSet, **changes: Any) -> ResultSet:
    """Change fields of a bench's Meta, and return the new ResultSet.

    Raises:
        ResultsError: the ResultSet was loaded, not created or reopened; another process writes to the bench.
        DiskFullError: the disk is full.
    """
    meta = replace(results.meta, **changes)
    if meta != results.meta:
        writer = _writer(results)
        with disk(results.folder):
            writer.check()
            write_object(results.folder / reading.META, meta)
    return replace(results, meta=meta)


def append(results: ResultSet, run: RunResult) -> ResultSet:
    """Store one run durably, and return the ResultSet with it.

    Raises:
        ResultsError: the ResultSet was loaded, not created or reopened.
        DiskFullError: the disk is full; earlier runs stay readable.
    """
    writer = _writer(results)
    _write(writer, writer.ledger.records_of(run))
    writer.ledger.made[len(writer.ledger.runs) - 1] = run
    _keep_meta(results)
    return _view(results.meta, results.folder, writer)


def judge(results: ResultSet, judged: RunResult) -> ResultSet:
    """Store a later comparison of a run's text, and return the ResultSet with it.

    Args:
        results: created or reopened.
        judged: the run with its new ``text_identical``, ``difference`` and ``audit``; its log identifies it.

    Raises:
        ResultsError: no run of this bench has this log, or the ResultSet was loaded.
        DiskFullError: the disk is full.
    """
    writer = _writer(results)
    runs = writer.ledger.runs
    number = next((i for i in reversed(range(len(runs))) if runs[i].log == judged.log), None)
    if number is None:
        raise ResultsError(f"the bench {results.meta.id} has no run with the log {judged.log!r}")
    record = JudgedRecord(
        run=number,
        log=judged.log,
        text_identical=judged.text_identical,
        difference=judged.difference,
        audit=judged.audit,
    )
    _write(writer, [record])
    return _view(results.meta, results.folder, writer)


def write_bench(folder: Path, meta: Meta, runs: Iterable[RunResult]) -> None:
    """Write a bench outside of the store, in the present format; nobody appends to it.

    Args:
        folder: exists, and has no bench yet.
        meta: of the bench; its id is the folder's name.
        runs: in the order of measurement; later judgements are part of them.

    Raises:
        ResultsError: the folder cannot be written.
        DiskFullError: the disk is full.
    """
    ledger, contents = Ledger(), list[bytes]()
    for run in runs:
        new = ledger.records_of(run)
        ledger.add(new)
        contents += map(records.encode_checked, new)
    lines, _ = seals.seal_all(contents, seals.start(meta.id))
    with disk(folder):
        (folder / reading.RUNS).write_bytes(lines)
        write_object(folder / reading.META, replace(meta, schema_version=SCHEMA_VERSION))


def close(results: ResultSet) -> None:
    """Let other processes write to a bench. Without this call, the lock ends with the last ResultSet."""
    if results.writer is not None:
        results.writer.lock.release()


def confirm(results: ResultSet) -> None:
    """Check that all appended runs are still stored and no second process writes.

    Raises:
        ResultsError: the files were removed, replaced or changed meanwhile, or the ResultSet was loaded.
    """
    writer = _writer(results)
    with disk(results.folder):
        writer.check()
    _keep_meta(results)


def _keep_meta(results: ResultSet) -> None:
    """Write meta.json again if another program removed it: without it, the runs cannot be read."""
    file = results.folder / reading.META
    with disk(results.folder):
        if not file.exists():
            write_object(file, results.meta)


def load(run: str | Path = LATEST, *, salvage: bool = False) -> ResultSet:
    """Read a stored bench.

    Args:
        run: a run's id or the unique beginning of one, ``last``, or the path of its folder.
        salvage: read what is left of a damaged bench; ``damage`` says what is missing.

    Raises:
        ResultsError: the bench does not exist, or its files cannot be read.
    """
    folder = (salvage and _without_meta(str(run))) or find_bench(str(run))
    stored = reading.read_bench(folder, salvage=salvage)
    return ResultSet(meta=stored.meta, folder=folder, runs=Runs(stored.ledger), damage=stored.damage)


def load_each(benches: Iterable[str | LoadedBench], sink: Sink, *, salvage: bool = False) -> list[ResultSet]:
    """Return benches that are named, or loaded already; the sink gets what of them cannot be read.

    Raises:
        ResultsError: a bench does not exist, or its files cannot be read.
    """
    loaded = []
    for bench in benches:
        stored = load(bench, salvage=salvage) if isinstance(bench, str) else bench
        assert isinstance(stored, ResultSet)
        say_damage(stored, sink)
        loaded.append(stored)
    return loaded


def say_damage(stored: ResultSet, sink: Sink) -> None:
    """Say which parts of a bench cannot be read."""
    for sentence in stored.damage:
        sink.say(f"warning: {stored.meta.id}: {sentence}")


def delete(run: str) -> None:
    """Remove a stored bench and its logs permanently.

    Args:
        run: as for ``load``.

    Raises:
        ResultsError: the bench is not in the store, or it is being written.
    """
    folder = find_bench(run)
    if folder.is_symlink() or folder.parent.resolve() != paths.runs_dir().resolve():
        raise ResultsError(f"{folder} is not in the store", "remove the folder yourself")
    remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder of the store permanently, also one that is no bench; none is ever left in part.

    Raises:
        ResultsError: the bench is being written, or cannot be removed.
    """
    with disk(folder), Lock(folder) as lock:
        folder.rename(folder.with_name(f"{_DELETED}{folder.name}-{secrets.token_hex(4)}"))  # gone at once
        for remains in paths.runs_dir().glob(f"{_DELETED}*"):  # also of a process that was killed
            shutil.rmtree(remains, ignore_errors=True)
        lock.release()


def _write(writer: Writer, new: Sequence[Any]) -> None:
    """Add records to the file, then to the ledger. If only the first worked, the lock is released."""
    contents = [records.encode_checked(record) for record in new]
    try:
        with disk(writer.file.parent):
            writer.append(contents)
        writer.ledger.add(new)
    except GgufspecError:  # nothing was added
        raise
    except BaseException:  # Ctrl-C between the two
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


def _check_comparable(meta: Meta, build: Build | None, machine: Machine | None) -> None:
    """Raise if further runs would not be comparable with the stored ones."""
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
