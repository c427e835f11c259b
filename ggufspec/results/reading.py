"""Read the folder of a bench, and find damage in it.

A process or a machine may stop at any moment, so the end of runs.jsonl may be incomplete. Those runs were
never reported as stored; they are left out with a warning. Damage before the end is an error; ``salvage``
reads what is left of such a bench.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ggufspec import units
from ggufspec.domain import Build, Machine
from ggufspec.errors import ResultsError
from ggufspec.results import records, seals
from ggufspec.results.records import CallRecord, JudgedRecord, Ledger, OutputRecord, SpecRecord, TextRecord
from ggufspec.results.resultset import SCHEMA_VERSION, Meta
from ggufspec.results.writer import refuse_newer

META = "meta.json"
RUNS = "runs.jsonl"
_CHUNK = 1 << 18
_MOST_NAMED = 5  # damaged lines in one message


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The contents of a bench's folder.

    ``size`` is the length in bytes of the undamaged lines at the start of runs.jsonl, ``checksum`` is that of
    these bytes, and ``end`` is the size of the file. ``damage`` says in sentences what was left out.
    """

    meta: Meta
    ledger: Ledger
    size: int
    end: int
    checksum: int
    damage: tuple[str, ...]


class _DamageError(ValueError):
    """The files were changed by another program."""


@dataclass(frozen=True, kw_only=True)
class _StoredLine:
    """A line of runs.jsonl on its own.

    ``joined`` is whether it was written together with the line before it, ``follows`` whether no line is
    missing between the two.
    """

    number: int  # from 1
    content: bytes
    undamaged: bool
    joined: bool
    follows: bool


def read_bench(folder: Path, *, salvage: bool = False) -> Stored:
    """Return the contents of a bench's folder.

    Args:
        folder: of the bench.
        salvage: read what is left of a damaged bench.

    Raises:
        ResultsError: it cannot be read, it is damaged, or a newer ggufspec wrote it.
    """
    try:
        meta, damage = _read_meta(folder, salvage=salvage)
        file = folder / RUNS
        if not file.is_file():  # a pipe in its place would be waited for without end
            raise _DamageError(f"{RUNS} is missing")
        if damage:
            return _read_remains(file.read_bytes(), meta, damage)
        return _read_undamaged(file, meta) or _read_damaged(file.read_bytes(), meta, salvage=salvage)
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ResultsError(
            f"cannot read the bench in {folder}: {error}",
            "its files are damaged or were edited"
            + ("" if salvage else f": `ggufspec show {folder.name} --salvage` shows what is left of it"),
        ) from error


def _read_meta(folder: Path, *, salvage: bool) -> tuple[Meta, tuple[str, ...]]:
    """Return the contents of meta.json and, for salvage, its damage."""
    try:
        content = (folder / META).read_bytes()
        meta = msgspec.json.decode(content, type=Meta, dec_hook=records.decode_hook)
    except (FileNotFoundError, ValueError) as error:
        if not salvage:
            raise
        what = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        return _unknown(folder.name), (f"{META} {what}: build, machine and engine are unknown",)
    if seals.follow(content, 0) is None:
        if not salvage:
            raise _DamageError(f"{META} does not match its checksum")
        return meta, (f"{META} does not match its checksum: build, machine and engine may be wrong",)
    refuse_newer(f"run {meta.id}", meta.schema_version, SCHEMA_VERSION)
    if meta.schema_version < SCHEMA_VERSION:
        raise _DamageError(f"there is no schema {meta.schema_version}")
    return meta, ()


def _unknown(name: str) -> Meta:
    """Return a Meta for a bench whose meta.json cannot be read."""
    return Meta(
        id=name,
        started_at="",
        engine="unknown",
        command=(),
        build=Build(version=None, commit=None, backend=None, path=""),
        machine=Machine(hostname="", system="", cpu="unknown processor", cores=0, memory_bytes=0),
    )


def _read_undamaged(file: Path, meta: Meta) -> Stored | None:
    """Return the contents of an undamaged file; None if it is damaged."""
    ledger, size, number, checksum = Ledger(), 0, 0, seals.start(meta.id)
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):  # faster than all at once: it stays in the processor's cache
            lines = chunk + stream.readline()
            after = seals.follow(lines, checksum)
            if after is None or not lines.endswith(b"\n"):
                return None
            try:
                new = records.decode(lines, first=number + 1)
                ledger.add(new)
            except ValueError:
                return None
            size, number, checksum = size + len(lines), number + len(new), after
    return Stored(meta=meta, ledger=ledger, size=size, end=size, checksum=checksum, damage=())


def _read_damaged(content: bytes, meta: Meta, *, salvage: bool) -> Stored:
    """Return the contents of a damaged file, if the damage is at its end or ``salvage`` is set.

    An append is one write. So damage is at the end unless a line that began a later append is undamaged.
    """
    lines = list(_lines(content, seals.start(meta.id)))
    first = next((number for number, line in enumerate(lines) if not (line.undamaged and line.follows)), None)
    at_end = first is not None and not any(line.undamaged and not line.joined for line in lines[first:])
    if at_end or (first is None and not salvage):
        return _read_beginning(content, lines[:first], meta)
    if salvage:
        return _read_remains(content, meta, ())
    raise _DamageError(", and ".join(_damaged(lines)))


def _read_beginning(content: bytes, lines: Sequence[_StoredLine], meta: Meta) -> Stored:
    """Return the contents of the undamaged lines at the start of a file."""
    beginning, ledger, checksum = b"".join(line.content for line in lines), Ledger(), seals.start(meta.id)
    if beginning:
        ledger.add(records.decode(beginning))
        checksum = seals.follow(beginning, checksum) or 0
    rest = content[len(beginning) :].rstrip(b"\n")
    left_out = units.counted(rest.count(b"\n") + 1, "line") if rest else ""
    return Stored(
        meta=meta,
        ledger=ledger,
        size=len(beginning),
        end=len(content),
        checksum=checksum,
        damage=(f"left out: {left_out} at the end of {RUNS} (damaged, or cut short while written)",)
        if left_out
        else (),
    )


def _read_remains(content: bytes, meta: Meta, damage: tuple[str, ...]) -> Stored:
    """Return the contents of all undamaged lines, each once."""
    lines = list(_lines(content, seals.start(meta.id)))
    ledger, remains, unknown = Ledger(), list[Any](), 0
    for line in dict.fromkeys(line.content for line in lines if line.undamaged):
        try:
            remains += records.decode(line)
        except ValueError:
            unknown += 1
    lost = unknown + _add_remains(ledger, remains)
    sentences = [*damage, *(f"left out: {sentence}" for sentence in _damaged(lines))]
    if lost:
        sentences.append(f"left out: {units.counted(lost, 'line')} of {RUNS} that refer to a damaged line")
    return Stored(meta=meta, ledger=ledger, size=0, end=0, checksum=0, damage=tuple(sentences))


def _lines(content: bytes, checksum: int) -> Iterator[_StoredLine]:
    """Yield each line of a file; ``checksum`` is the one before the first line."""
    before: int | None = checksum
    for number, line in enumerate(BytesIO(content), start=1):
        seal = seals.check_seal(line)
        yield _StoredLine(
            number=number,
            content=line,
            undamaged=seal is not None,
            joined=seal is not None and seal.joined,
            follows=seal is None or before in {None, seal.before},
        )
        before = None if seal is None else seal.after


def _damaged(lines: Sequence[_StoredLine]) -> list[str]:
    """Return sentences about damaged and missing lines."""
    damaged = [line.number for line in lines if not line.undamaged]
    missing = [line.number for line in lines if line.undamaged and not line.follows]
    sentences = []
    if damaged:
        sentences.append(f"{_numbered(damaged)} of {RUNS}: damaged")
    if missing:
        sentences.append(f"before {_numbered(missing)} of {RUNS}: lines are missing or moved")
    return sentences


def _numbered(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    more = len(numbers) - _MOST_NAMED
    named = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"lines {named}" + (f" and {more} more" if more > 0 else "")


_REFERENCES = {"spec": SpecRecord, "call": CallRecord, "output": OutputRecord, "text": TextRecord}
"""The fields in which records have the id of another, and the type of that."""


def _add_remains(ledger: Ledger, remains: Iterable[Any]) -> int:
    """Add the records of a damaged bench to an empty ledger; return how many refer to a lost one."""
    new: dict[type, dict[int, int]] = {kind: {} for kind in _REFERENCES.values()}  # id before -> id now
    numbers = {kind: count() for kind in new}
    lost = 0
    for record in remains:
        changes = _renumber(record, new, ledger)
        if None in changes.values():
            lost += 1
            continue
        if type(record) in new:
            changes["id"] = new[type(record)][record.id] = next(numbers[type(record)])
        ledger.add([structs.replace(record, **changes)])
    return lost


def _renumber(record: Any, new: Mapping[type, Mapping[int, int]], ledger: Ledger) -> dict[str, int | None]:
    """Return the ids of the ledger for those that a record refers to; None for one that is lost.

    A judgement finds its run by its log, because lost lines change the count of runs.
    """
    if isinstance(record, JudgedRecord):
        logs = [run.log for run in ledger.runs]
        return {"run": len(logs) - 1 - logs[::-1].index(record.log) if record.log in logs else None}
    old = {name: getattr(record, name, None) for name in _REFERENCES}
    return {
        name: new[_REFERENCES[name]].get(number) for name, number in old.items() if isinstance(number, int)
    }
