"""Suites with one JSON object per line, in the formats of public benchmarks of speculative decoding.

Spec-Bench (and MT-Bench)   question_id, category, turns: [text, ...]
SPEED-Bench                 the same with a text as question_id; as its own preparation writes it,
                            ``messages``: [{role, content}, ...], where every turn is a message of the user
other files                 prompt, text or messages; optional id and category

Sources: data/spec_bench/question.jsonl of hemingkx/Spec-Bench; the dataset card of nvidia/SPEED-Bench and
nemo_skills/dataset/speed-bench/prepare.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggufspec.errors import GgufspecError
from ggufspec.prompts.suite import BadPromptError, PromptEntry, PromptSuite, assemble, build, refuse_too_many

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
_FORM = 'each line is an object with turns, messages, prompt or text, such as {"id": "a", "prompt": "Hello"}'
_PREPARE = "run SPEED-Bench's own prepare script, which downloads these texts"


def read_jsonl(path: Path, text: str) -> PromptSuite:
    """Read a suite of messages to an assistant.

    Raises:
        GgufspecError: a line has an unknown format, or texts are still placeholders. A file with
            placeholders is refused, because a part of SPEED-Bench is not SPEED-Bench.
    """
    return assemble(path.stem, path, list(_entries(path, text)), instructions=True)


def _entries(path: Path, text: str) -> Iterator[PromptEntry]:
    masked: list[str] = []
    count = 0
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines would cut texts at U+2028
        if not line.strip():
            continue
        refuse_too_many(path, count := count + 1)
        where = f"{path}:{number}"
        try:
            turns, row = _turns(line)
            if any(isinstance(turn, str) and turn.strip() == _PLACEHOLDER for turn in turns):
                masked.append(where)
                continue
            name = row.get("question_id", row.get("id"))
            name = f"{path.stem}-{number}" if name is None else name
            yield PromptEntry(where, build(name=name, turns=turns, category=row.get("category")))
        except BadPromptError as problem:
            raise GgufspecError(f"{where}: {problem}", _FORM) from problem
    if masked:
        raise GgufspecError(
            f"{masked[0]}: the text is a placeholder, here and in {len(masked) - 1} more of {count} rows",
            _PREPARE,
        )


def _turns(line: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the user's turns, and the row itself."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPromptError(f"this is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadPromptError("this is not a JSON object")
    for key, read_turns in (
        ("turns", _read_turns),
        ("messages", _read_messages),
        ("prompt", _read_text),
        ("text", _read_text),
    ):
        if row.get(key) is not None:
            return read_turns(row[key]), row
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
