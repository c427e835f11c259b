"""Suites with one JSON object per line, in the layouts that public benchmarks of speculative decoding use.

Spec-Bench (and MT-Bench)   question_id, category, turns: [text, ...]
SPEED-Bench                 the same with a text as question_id; as its own preparation writes it,
                            ``messages``: [{role, content}, ...], with every turn a message of the user
anything simple             prompt or text, or messages; id and category where there are any

Sources: data/spec_bench/question.jsonl of hemingkx/Spec-Bench; the dataset card of nvidia/SPEED-Bench and
nemo_skills/dataset/speed-bench/prepare.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggufspec.errors import GgufspecError
from ggufspec.prompts.suite import BadPromptError, PromptEntry, PromptSuite, assemble, build, too_many

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
_FORM = 'each line is an object with turns, messages, prompt or text, such as {"id": "a", "prompt": "Hello"}'
_PREPARE = "run SPEED-Bench's own prepare script, which fetches those texts from their owners"


def read_jsonl(path: Path, text: str) -> PromptSuite:
    """Read a suite of messages to an assistant.

    Raises:
        GgufspecError: a line is not of a known layout, or texts are still placeholders: a part of
            SPEED-Bench is not SPEED-Bench, so such a file is refused as a whole.
    """
    return assemble(path.stem, path, list(_entries(path, text)), instructions=True)


def _entries(path: Path, text: str) -> Iterator[PromptEntry]:
    masked: list[str] = []
    count = 0
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines would cut texts at U+2028
        if not line.strip():
            continue
        too_many(path, count := count + 1)
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
            f"{masked[0]}: a placeholder stands in for the text, here and in {len(masked) - 1} more "
            f"of {count} rows",
            _PREPARE,
        )


def _turns(line: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what the user says, turn by turn, and the row itself."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPromptError(f"this is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadPromptError("this is no JSON object")
    for key, read_turns in (("turns", _listed), ("messages", _users), ("prompt", _one), ("text", _one)):
        if row.get(key) is not None:
            return read_turns(row[key]), row
    raise BadPromptError("there are no turns, messages, prompt or text")


def _one(value: Any) -> list[Any]:
    return [value]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadPromptError("turns is no list")
    return value


def _users(value: Any) -> list[Any]:
    """Return the user's messages; recorded answers are left out, as every model gives its own.

    A system message goes in front of the user's first, as it does where a chat template knows no such role.
    """
    if not isinstance(value, list):
        raise BadPromptError("messages is no list")
    system: list[str] = []
    turns: list[str] = []
    for number, message in enumerate(value, start=1):
        role, content = (
            (message.get("role"), message.get("content")) if isinstance(message, dict) else ("", 0)
        )
        if role not in {"system", "user", "assistant"}:
            raise BadPromptError(f"message {number} has no role out of system, user and assistant")
        if role == "assistant":
            continue
        if not isinstance(content, str):
            raise BadPromptError(f"the content of message {number} is not a string")
        (turns if role == "user" else system).append(content)
    return ["\n\n".join([*system, turns[0]]), *turns[1:]] if turns else []
