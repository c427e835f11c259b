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

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Struct, defstruct

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
