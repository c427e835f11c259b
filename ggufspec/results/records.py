"""The lines of runs.jsonl: values that runs share are written once, and runs refer to them.

{"kind":"spec","id":0,"spec":{…}}                    the specification
{"kind":"call","id":0,"engine":"binary","argv":[…]}  engine and command line
{"kind":"text","id":0,"text":"…"}                    the generated text
{"kind":"output","id":0,"status":"ok","text":0,…}    a Sample without its text and times
{"kind":"run","spec":0,"call":0,"output":0,…}        a RunResult with its Sample's times
{"kind":"judged","run":7,"text_identical":false,…}   the comparison of a run's text, made later

Ids count from 0 within a kind. A line refers to earlier lines only. Default values are left out. Each line
ends with its checksums, see seals.py. All fields come from the domain's classes, so a new field is stored
without a change here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Struct, defstruct, structs

from ggufspec.domain import Conditions, Difference, RunResult, RunSpec, Sample, TextAudit
from ggufspec.errors import ResultsError

Id = Annotated[int, msgspec.Meta(ge=0)]

TIME_FIELDS = tuple(field.name for field in fields(Sample) if field.name.endswith(("_s", "_ms", "_tps")))
"""The fields of a Sample that differ from run to run; all others repeat where decoding is greedy."""
TEXT_FIELDS = ("text", "tokens")


class SpecRecord(Struct, tag_field="kind", tag="spec", omit_defaults=True, kw_only=True):
    """A specification; ``key`` is stored with it, so that readers need not compute it."""

    id: Id
    spec: RunSpec
    key: str

    def __post_init__(self) -> None:
        vars(self.spec).setdefault("key", self.key)  # where the cached property keeps it


class CallRecord(Struct, tag_field="kind", tag="call", omit_defaults=True, kw_only=True):
    """An engine and its command line."""

    id: Id
    engine: str
    argv: tuple[str, ...]


class TextRecord(Struct, tag_field="kind", tag="text", omit_defaults=True, kw_only=True):
    """A generated text."""

    id: Id
    text: str | None = None
    tokens: tuple[int, ...] | None = None


class JudgedRecord(Struct, tag_field="kind", tag="judged", omit_defaults=True, kw_only=True):
    """The comparison of a run's text with the target's, made after the run.

    ``run`` counts the run lines from 0, and ``log`` is the run's log.
    """

    run: Id
    log: str | None = None
    text_identical: bool | None = None
    difference: Difference | None = None
    audit: TextAudit | None = None


def _mirror(
    name: str, source: type, *, without: tuple[str, ...], extra: Mapping[str, Any], tag: str | None
) -> Any:
    """Return a Struct with the fields of a dataclass; it decodes several times as fast as the dataclass."""
    types = get_type_hints(source)
    mirrored = [
        (field.name, types[field.name], *(() if field.default is MISSING else (field.default,)))
        for field in fields(source)
        if field.name not in {*without, *extra}
    ]
    added = [
        (key, *declaration) if isinstance(declaration, tuple) else (key, declaration)
        for key, declaration in extra.items()
    ]
    return defstruct(
        name,
        [*added, *mirrored],
        module=__name__,
        namespace={"__doc__": source.__doc__, **_properties(source)},
        tag_field=tag and "kind",
        tag=tag,
        omit_defaults=True,
        kw_only=True,
        gc=False,  # no reference cycles
    )


def _properties(source: type) -> dict[str, property]:
    return {name: value for name, value in vars(source).items() if isinstance(value, property)}


ConditionsRecord = _mirror("ConditionsRecord", Conditions, without=(), extra={}, tag=None)

OutputRecord = _mirror(
    "OutputRecord",
    Sample,
    without=(*TEXT_FIELDS, *TIME_FIELDS),
    extra={"id": Id, "text": (Id | None, None)},
    tag="output",
)

_TIME_TYPES = {name: (kind, None) for name, kind in get_type_hints(Sample).items() if name in TIME_FIELDS}

RunRecord = _mirror(
    "RunRecord",
    RunResult,
    without=("engine", "sample", "argv"),
    extra={
        "spec": Id,
        "call": Id,
        "output": Id,
        **_TIME_TYPES,
        "conditions": (ConditionsRecord | None, None),
    },
    tag="run",
)

Record = SpecRecord | CallRecord | TextRecord | OutputRecord | RunRecord | JudgedRecord


def decode_hook(expected: type, value: object) -> object:
    """Return a value of a type that JSON does not have."""
    if expected is Path:
        return Path(str(value))
    raise NotImplementedError(expected.__name__)


def encode(value: object) -> bytes:
    """Return a value as one line of JSON without a newline; numbers are not checked."""
    return msgspec.json.encode(value, enc_hook=_encode_hook)


def encode_checked(value: object) -> bytes:
    """Return a value as one line of JSON, whose numbers are finite: JSON would write others as null.

    Raises:
        ResultsError: a number is not finite.
    """
    for name, number in _not_finite(msgspec.to_builtins(value, enc_hook=_encode_hook), ""):
        raise ResultsError(
            f"{name} is {number}, which cannot be stored",
            "only finite numbers can be stored; this is a defect of ggufspec, please report it",
        )
    return encode(value)


def decode(lines: bytes, *, first: int = 1) -> list[Any]:
    """Return the records of complete lines, one for each line.

    Raises:
        ValueError: a line is not a record; says which, where the first one has the number ``first``.
    """
    try:
        records: list[Any] = _decoder.decode_lines(lines)
    except msgspec.MsgspecError:
        for number, line in enumerate(lines.removesuffix(b"\n").split(b"\n"), start=first):
            try:
                _decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise ValueError(f"line {number}: {error}") from error
        raise
    return records


def _not_finite(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers that are not finite, each with its name such as ``sampling.temperature``."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _not_finite(item, name)


def _encode_hook(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value).__name__)


_decoder = msgspec.json.Decoder(Record, dec_hook=decode_hook)


OUTPUT_FIELDS = frozenset(field.name for field in fields(Sample)) - {*TEXT_FIELDS, *TIME_FIELDS}
_ELSEWHERE = {"spec", "engine", "argv", "sample", "conditions"}  # in records of their own
RUN_FIELDS = frozenset(field.name for field in fields(RunResult)) - _ELSEWHERE


@dataclass(kw_only=True)
class Ledger:
    """All records of a bench. It only grows; runs in it never change."""

    runs: list[Any] = field(default_factory=list)  # RunRecord
    specs: list[RunSpec] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    texts: list[TextRecord] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)  # OutputRecord
    # by run: (number of the judgement, record)
    judged: dict[int, list[tuple[int, JudgedRecord]]] = field(default_factory=dict)
    n_judged: int = 0
    made: dict[int, RunResult] = field(default_factory=dict)  # RunResults made so far
    known: dict[bytes, int] = field(default_factory=dict)  # digest of a shared record -> its id

    def add(self, added: Sequence[Any]) -> None:
        """Add records in their stored order.

        Raises:
            ValueError: a record refers to one that does not exist.
        """
        runs = [record for record in added if type(record) is RunRecord]
        before = len(self.runs)
        self.runs += runs
        for record in added if len(runs) < len(added) else ():
            if type(record) is not RunRecord:
                self._judge(record) if type(record) is JudgedRecord else self._share(record)
        specs, calls, outputs = len(self.specs), len(self.calls), len(self.outputs)
        for number, run in enumerate(runs, start=before):
            if run.spec >= specs or run.call >= calls or run.output >= outputs:
                raise ValueError(f"run {number} refers to a missing record")

    def records_of(self, run: RunResult) -> list[Any]:
        """Return the new records of a run: those that no earlier run has, then its own."""
        new: list[Any] = []
        text = None
        if run.sample.text is not None or run.sample.tokens is not None:
            text = self._id(
                TextRecord(id=len(self.texts), text=run.sample.text, tokens=run.sample.tokens), new
            )
        output = {name: getattr(run.sample, name) for name in OUTPUT_FIELDS}
        conditions = run.conditions and ConditionsRecord(**vars(run.conditions))
        record = RunRecord(
            spec=self._id(SpecRecord(id=len(self.specs), spec=run.spec, key=run.spec.key), new),
            call=self._id(CallRecord(id=len(self.calls), engine=run.engine, argv=run.argv), new),
            output=self._id(OutputRecord(id=len(self.outputs), text=text, **output), new),
            conditions=conditions,
            **{name: getattr(run.sample, name) for name in TIME_FIELDS},
            **{name: getattr(run, name) for name in RUN_FIELDS},
        )
        return [*new, record]

    def run(self, number: int, n_judged: int) -> RunResult:
        """Return one run with the first ``n_judged`` judgements applied."""
        judged = self.judgement(number, n_judged)
        if number not in self.made:
            self.made[number] = self._make(self.runs[number])
        if judged is None:
            return self.made[number]
        return replace(
            self.made[number],
            text_identical=judged.text_identical,
            difference=judged.difference,
            audit=judged.audit,
        )

    def judgement(self, index: int, n_judged: int) -> JudgedRecord | None:
        """Return the last judgement of a run among the first ``n_judged`` of the bench; None without one."""
        of_run = reversed(self.judged.get(index, ()))
        return next((record for number, record in of_run if number < n_judged), None)

    def sample(self, output: Any, times: Mapping[str, Any] = MappingProxyType({})) -> Sample:
        """Return the Sample of an output record with these times; without them they are None."""
        text = TextRecord(id=0) if output.text is None else self.texts[output.text]
        fixed = {name: getattr(output, name) for name in OUTPUT_FIELDS}
        return Sample(**fixed, **times, text=text.text, tokens=text.tokens)

    def _make(self, record: Any) -> RunResult:
        call = self.calls[record.call]
        return RunResult(
            spec=self.specs[record.spec],
            engine=call.engine,
            argv=call.argv,
            sample=self.sample(
                self.outputs[record.output], {name: getattr(record, name) for name in TIME_FIELDS}
            ),
            conditions=record.conditions and Conditions(**structs.asdict(record.conditions)),
            **{name: getattr(record, name) for name in RUN_FIELDS},
        )

    def _id(self, record: Any, new: list[Any]) -> int:
        """Return the id of a shared record; append it to ``new`` if it is not stored yet."""
        if not self.known:
            for shared in self._shared():
                self.known[_digest(shared)] = shared.id
        known_id = self.known.get(_digest(record))
        if known_id is None:
            new.append(record)
            return int(record.id)
        return known_id

    def _shared(self) -> Iterator[Any]:
        yield from (SpecRecord(id=number, spec=spec, key=spec.key) for number, spec in enumerate(self.specs))
        yield from self.calls
        yield from self.texts
        yield from self.outputs

    def _share(self, record: Any) -> None:
        if type(record) is OutputRecord and record.text is not None and record.text >= len(self.texts):
            raise ValueError(f"output {record.id} refers to a missing text")
        tables: dict[type, list[Any]] = {
            SpecRecord: self.specs,
            CallRecord: self.calls,
            TextRecord: self.texts,
            OutputRecord: self.outputs,
        }
        table = tables[type(record)]
        if record.id != len(table):
            raise ValueError(f"{type(record).__name__} {record.id} is number {len(table)} of its kind")
        table.append(record.spec if type(record) is SpecRecord else record)
        if self.known:
            self.known[_digest(record)] = record.id

    def _judge(self, record: JudgedRecord) -> None:
        if record.run >= len(self.runs):
            raise ValueError(f"run {record.run} was judged but does not exist")
        self.judged.setdefault(record.run, []).append((self.n_judged, record))
        self.n_judged += 1


def _digest(record: Any) -> bytes:
    content = encode(structs.replace(record, id=0))
    return hashlib.blake2b(content, digest_size=16).digest()
