"""Read the folder of a bench, and find damage in it.

A process or a machine may stop at any moment, so the end of runs.jsonl may be incomplete. Those runs were
never reported as stored; they are left out with a warning. Damage before the end is an error; ``salvage``
reads what is left of such a bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ggufspec import units
from ggufspec.domain import Build, Conditions, Machine, RunResult
from ggufspec.errors import ResultsError
from ggufspec.results import records, seals
from ggufspec.results.ledger import Ledger
from ggufspec.results.records import CallRecord, JudgedRecord, OutputRecord, SpecRecord, TextRecord
from ggufspec.results.resultset import SCHEMA_VERSION, Meta

META = "meta.json"
RUNS = "runs.jsonl"
_FIRST_SEALED = 3  # schema version
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
class _Format:
    """How the lines of a schema version are read; ``sealed`` lines have checksums."""

    decode: Callable[..., Sequence[Any]]
    add: Callable[[Ledger, Any], object]
    add_remains: Callable[[Ledger, Any], int]
    sealed: bool

    def is_undamaged(self, line: bytes) -> bool:
        """Whether a line is undamaged; without a checksum, whether it can be decoded."""
        if self.sealed:
            return seals.check_seal(line) is not None
        try:
            self.decode(line)
        except ValueError:
            return False
        return line.endswith(b"\n")


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
        if not file.exists():
            raise _DamageError(f"{RUNS} is missing")
        if damage:
            content = file.read_bytes()
            return _read_remains(content, meta, _likeliest_format(content), damage)
        line_format = _FORMATS[meta.schema_version]
        undamaged = _read_undamaged(file, meta, line_format)
        return undamaged or _read_damaged(file.read_bytes(), meta, line_format, salvage=salvage)
    except (OSError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise ResultsError(
            f"cannot read the run in {folder}: {error}",
            "its files are damaged or were edited"
            + ("" if salvage else f": `ggufspec show {folder.name} --salvage` shows what is left of it"),
        ) from error


def _read_meta(folder: Path, *, salvage: bool) -> tuple[Meta, tuple[str, ...]]:
    """Return the contents of meta.json and, for salvage, its damage."""
    try:
        content = (folder / META).read_bytes()
    except FileNotFoundError:
        if not salvage:
            raise
        return _unknown(folder.name), (f"{META} is missing: build, machine and engine are unknown",)
    try:
        meta = msgspec.json.decode(content, type=Meta, dec_hook=records.decode_hook)
    except ValueError:
        if not salvage:
            raise
        return _unknown(folder.name), (f"{META} cannot be read: build, machine and engine are unknown",)
    sealed = seals.has_seal(content) or _FIRST_SEALED <= meta.schema_version <= SCHEMA_VERSION
    if sealed and seals.follow(content, 0) is None:
        if not salvage:
            raise _DamageError(f"{META} does not match its checksum")
        return meta, (f"{META} does not match its checksum: build, machine and engine may be wrong",)
    if meta.schema_version > SCHEMA_VERSION:
        raise ResultsError(
            f"run {meta.id} was written by a newer ggufspec (schema {meta.schema_version})",
            "upgrade ggufspec to read it",
        )
    if meta.schema_version not in _FORMATS:
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


def _read_undamaged(file: Path, meta: Meta, line_format: _Format) -> Stored | None:
    """Return the contents of an undamaged file; None if it is damaged."""
    ledger, size, number, checksum = Ledger(), 0, 0, seals.start(meta.id)
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):  # faster than all at once: it stays in the processor's cache
            lines = chunk + stream.readline()
            after = seals.follow(lines, checksum) if line_format.sealed else checksum
            if after is None or not lines.endswith(b"\n"):
                return None
            try:
                new = line_format.decode(lines, first=number + 1)
                line_format.add(ledger, new)
            except ValueError:
                return None
            size, number, checksum = size + len(lines), number + len(new), after
    return Stored(meta=meta, ledger=ledger, size=size, end=size, checksum=checksum, damage=())


def _read_damaged(content: bytes, meta: Meta, line_format: _Format, *, salvage: bool) -> Stored:
    """Return the contents of a damaged file, if the damage is at its end or ``salvage`` is set.

    An append is one write. So damage is at the end unless a line that began a later append is undamaged.
    """
    lines = list(_lines(content, line_format, seals.start(meta.id)))
    first = next((place for place, line in enumerate(lines) if not (line.undamaged and line.follows)), None)
    at_end = first is not None and not any(line.undamaged and not line.joined for line in lines[first:])
    if at_end or (first is None and not salvage):
        return _read_beginning(content, lines[:first], meta, line_format)
    if salvage:
        return _read_remains(content, meta, line_format, ())
    raise _DamageError(", and ".join(_damaged(lines)))


def _read_beginning(content: bytes, lines: Sequence[_StoredLine], meta: Meta, line_format: _Format) -> Stored:
    """Return the contents of the undamaged lines at the start of a file."""
    beginning, ledger, checksum = b"".join(line.content for line in lines), Ledger(), seals.start(meta.id)
    if beginning:
        line_format.add(ledger, line_format.decode(beginning))
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


def _read_remains(content: bytes, meta: Meta, line_format: _Format, damage: tuple[str, ...]) -> Stored:
    """Return the contents of all undamaged lines, each once."""
    lines = list(_lines(content, line_format, seals.start(meta.id)))
    ledger, remains, unknown = Ledger(), list[Any](), 0
    for line in dict.fromkeys(line.content for line in lines if line.undamaged):
        try:
            remains += line_format.decode(line)
        except ValueError:
            unknown += 1
    lost = unknown + line_format.add_remains(ledger, remains)
    sentences = [*damage, *(f"left out: {sentence}" for sentence in _damaged(lines))]
    if lost:
        sentences.append(f"left out: {units.counted(lost, 'line')} of {RUNS} that refer to a damaged line")
    return Stored(meta=meta, ledger=ledger, size=0, end=0, checksum=0, damage=tuple(sentences))


def _lines(content: bytes, line_format: _Format, checksum: int) -> Iterator[_StoredLine]:
    """Yield each line of a file; ``checksum`` is the one before the first line."""
    before: int | None = checksum
    for number, line in enumerate(BytesIO(content), start=1):
        seal = seals.check_seal(line) if line_format.sealed else None
        yield _StoredLine(
            number=number,
            content=line,
            undamaged=line_format.is_undamaged(line),
            joined=seal is not None and seal.joined,
            follows=seal is None or before in {None, seal.before},
        )
        before = None if seal is None else seal.after


def _likeliest_format(content: bytes) -> _Format:
    """Return the format in which most lines of a file are undamaged."""
    return max(_FORMATS.values(), key=lambda known: sum(line.undamaged for line in _lines(content, known, 0)))


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


_New = dict[type, dict[int, int]]
"""Type of a shared record -> its id before -> its id now."""


def _add_remains(ledger: Ledger, remains: Iterable[Any]) -> int:
    """Add the records of a damaged bench to an empty ledger; return how many refer to a lost one.

    A judgement finds its run by its log, because lost lines change the count of runs.
    """
    new: _New = {record_type: {} for record_type in (SpecRecord, CallRecord, TextRecord, OutputRecord)}
    lost = 0
    for record in remains:
        renumbered = _renumbered(record, new, ledger)
        if renumbered is None:
            lost += 1
            continue
        if type(record) in new:
            new[type(record)][record.id] = renumbered.id
        ledger.add([renumbered])
    return lost


def _renumbered(record: Any, new: _New, ledger: Ledger) -> Any:
    """Return a record with the ids of the ledger; None if it refers to a lost record."""
    match record:
        case SpecRecord():
            return structs.replace(record, id=len(ledger.specs))
        case CallRecord():
            return structs.replace(record, id=len(ledger.calls))
        case TextRecord():
            return structs.replace(record, id=len(ledger.texts))
        case OutputRecord():
            text = None if record.text is None else new[TextRecord].get(record.text)
            if text is None and record.text is not None:
                return None
            return structs.replace(record, id=len(ledger.outputs), text=text)
        case JudgedRecord():
            logs = [run.log for run in ledger.runs]
            if record.log not in logs:
                return None
            return structs.replace(record, run=len(logs) - 1 - logs[::-1].index(record.log))
    spec = new[SpecRecord].get(record.spec)
    call = new[CallRecord].get(record.call)
    output = new[OutputRecord].get(record.output)
    if spec is None or call is None or output is None:
        return None
    return structs.replace(record, spec=spec, call=call, output=output)


class _Moved(msgspec.Struct):
    """A field that is now in ``Conditions``."""

    others_cores: float | None = None


_run_decoder = msgspec.json.Decoder(RunResult, dec_hook=records.decode_hook)
_moved_decoder = msgspec.json.Decoder(_Moved)


def _decode_version_1(lines: bytes, *, first: int = 1) -> list[RunResult]:
    """Return the runs of complete lines.

    Raises:
        ValueError: a line is not a run; says which, where the first one has the number ``first``.
    """
    runs = []
    for number, line in enumerate(lines.removesuffix(b"\n").split(b"\n"), start=first):
        try:
            others_cores = _moved_decoder.decode(line).others_cores
            conditions = None if others_cores is None else Conditions(others_cores=others_cores)
            runs.append(replace(_run_decoder.decode(line), conditions=conditions))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return runs


def _add_version_1(ledger: Ledger, runs: Sequence[RunResult]) -> int:
    """Add runs to a ledger; return 0, as no run refers to another line that may be lost."""
    for run in runs:
        ledger.add(ledger.records_of(run))
    return 0


_FORMATS = {
    1: _Format(decode=_decode_version_1, add=_add_version_1, add_remains=_add_version_1, sealed=False),
    2: _Format(decode=records.decode, add=Ledger.add, add_remains=_add_remains, sealed=False),
    **dict.fromkeys(
        (3, 4, 5), _Format(decode=records.decode, add=Ledger.add, add_remains=_add_remains, sealed=True)
    ),
}
