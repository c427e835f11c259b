"""Suites of rows, such as JSON objects, in the formats of public benchmarks of speculative decoding.

Spec-Bench (and MT-Bench)   question_id, category, turns: [text, ...]
SPEED-Bench                 the same with a text as question_id; as its own preparation writes it,
                            ``messages``: [{role, content}, ...], where every turn is a message of the user
                            The category of a throughput split gets the length of its prompts, which
                            only the name of the split has: ``throughput_8k``.
other files                 prompt, text or messages; optional id and category

Sources: data/spec_bench/question.jsonl of hemingkx/Spec-Bench; the dataset card of nvidia/SPEED-Bench and
nemo_skills/dataset/speed-bench/prepare.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ggufspec import userfiles
from ggufspec.errors import GgufspecError
from ggufspec.prompts.suite import (
    CONDITIONS,
    BadPromptError,
    PromptEntry,
    PromptSuite,
    assemble,
    build,
    conditions,
    refuse_too_many,
)

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
FIELDS = frozenset({"question_id", "id", "category", "turns", "messages", "prompt", "text"}) | CONDITIONS
"""The fields of a row that are read."""

_LENGTH = re.compile(r"throughput[_-](\d+k)", re.IGNORECASE)
_FORM = 'each line is an object with turns, messages, prompt or text, such as {"id": "a", "prompt": "Hello"}'
_PREPARE = "run SPEED-Bench's own prepare script, which downloads these texts"


class SuiteRow(NamedTuple):
    """A row with its place and its number in a file."""

    where: str
    number: int
    values: dict[str, Any]


def read_jsonl(path: Path, text: str) -> PromptSuite:
    """Read a suite of messages to an assistant.

    Raises:
        GgufspecError: as for ``make_suite``, or a line is not a JSON object.
    """
    return make_suite(path, read_rows(path, text))


def read_rows(path: Path, text: str, hint: str = _FORM) -> Iterator[SuiteRow]:
    """Yield the JSON object of each line.

    Args:
        path: of the file, for messages.
        text: what is in it.
        hint: what the objects should be.

    Raises:
        GgufspecError: a line is not one.
    """
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines would cut texts at U+2028
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise GgufspecError(f"{where}: this is not JSON: {error}", hint) from error
        if not isinstance(row, dict):
            raise GgufspecError(f"{where}: this is not a JSON object", hint)
        yield SuiteRow(where, number, row)


def make_suite(path: Path, rows: Iterable[SuiteRow], *, name: str | None = None) -> PromptSuite:
    """Make a suite of messages to an assistant from rows.

    Args:
        path: of the file; its name and its folder's may say how long the prompts are.
        rows: of the file.
        name: of the suite; None for that of the file.

    Raises:
        GgufspecError: a row has an unknown format, or texts are still placeholders. A file with
            placeholders is refused, because a part of SPEED-Bench is not SPEED-Bench.
    """
    entries = list(_entries(path, rows, length=find_length(name or "", path.parent.name, path.stem)))
    return assemble(name or path.stem, path, entries, instructions=True)


def find_length(*names: str) -> str | None:
    """Return the length of the prompts of a throughput split of SPEED-Bench, such as 8k; None for others."""
    matches = (match for name in reversed(names) if (match := _LENGTH.search(name)))
    return next((match[1].lower() for match in matches), None)


def _entries(path: Path, rows: Iterable[SuiteRow], *, length: str | None) -> Iterator[PromptEntry]:
    masked: list[str] = []
    count = 0
    for where, number, row in rows:
        refuse_too_many(path, count := count + 1)
        try:
            turns = _turns(row)
            if any(isinstance(turn, str) and turn.strip() == _PLACEHOLDER for turn in turns):
                masked.append(where)
                continue
            name = row.get("question_id", row.get("id"))
            name = f"{path.stem}-{number}" if name is None else name
            category = row.get("category")
            if length is not None and (category is None or isinstance(category, str)):
                category = length if category is None else f"{category}, {length}"
            yield PromptEntry(where, build(name=name, turns=turns, category=category))
        except BadPromptError as problem:
            raise GgufspecError(f"{where}: {problem}", _FORM) from problem
    if masked:
        raise GgufspecError(
            f"{masked[0]}: the text is a placeholder, here and in {len(masked) - 1} more of {count} rows",
            _PREPARE,
        )


def _turns(row: Mapping[str, Any]) -> list[Any]:
    """Return the user's turns."""
    if needed := conditions(row):
        raise BadPromptError(f"{needed[0]} is not measured: its text alone would be another request")
    for key, read_turns in (
        ("turns", _read_turns),
        ("messages", _read_messages),
        ("prompt", _read_text),
        ("text", _read_text),
    ):
        if row.get(key) is not None:
            return read_turns(row[key])
    raise BadPromptError("there are no turns, messages, prompt or text")


def _read_text(value: Any) -> list[Any]:
    return [value]


def _read_turns(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadPromptError("turns is not a list")
    return value


def _read_messages(value: Any) -> list[Any]:
    """Return the user's messages; recorded answers are left out, because each model gives its own.

    A system message is put before the user's first message, as for chat templates without that role.
    """
    if not isinstance(value, list):
        raise BadPromptError("messages is not a list")
    system: list[str] = []
    turns: list[str] = []
    for number, message in enumerate(value, start=1):
        role, content = (
            (message.get("role"), message.get("content")) if isinstance(message, dict) else ("", 0)
        )
        if role not in {"system", "user", "assistant"}:
            raise BadPromptError(f"the role of message {number} is not system, user or assistant")
        if role == "assistant":
            continue
        if not isinstance(content, str):
            raise BadPromptError(f"the content of message {number} is not a string")
        (turns if role == "user" else system).append(content)
    return ["\n\n".join([*system, turns[0]]), *turns[1:]] if turns else []


_AT_ONCE = 256  # rows


def read_parquet(path: Path) -> Iterator[SuiteRow]:
    """Yield the rows of a file; columns that no suite has are not read.

    Raises:
        GgufspecError: pyarrow is not installed, or the file cannot be read.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise GgufspecError(
            f"{path} is Parquet, which pyarrow reads, and that is not installed",
            "pip install 'ggufspec[parquet]'",
        ) from error
    try:
        userfiles.check_regular(path)
        with parquet.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in FIELDS]
            number = 0
            for batch in file.iter_batches(batch_size=_AT_ONCE, columns=columns):
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    number += 1
                    yield SuiteRow(f"{path}, row {number}", number, row)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise GgufspecError(f"cannot read {path} as Parquet: {reason}", "download it again") from error
