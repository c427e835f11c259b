"""Conversations to text: a model's own chat template, rendered where it can do no harm."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ggufspec import proc
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles.compat import effective
from ggufspec.modelfiles.gguf import ModelCard

__all__ = ["Message", "Render", "has_template", "render"]

_SANDBOX = Path(__file__).with_name("sandbox.py")
_MEMORY_BYTES = 1 << 30
_TIME_S = 10.0
_TIME_PER_CONVERSATION_S = 0.002
_MOST_TEMPLATE = 1 << 20  # characters; the longest ones of today have some 20,000
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")  # what Python needs; no tokens, no keys
_RAW = "--raw gives the prompts to the model as they are, without a template"


@dataclass(frozen=True)
class Message:
    """What one side of a conversation says; ``role`` is system, user or assistant."""

    role: str
    content: str


Render = Callable[[Sequence[Message]], str]
"""Makes a prompt's text of a conversation that ends with the user's turn."""


def has_template(card: ModelCard) -> bool:
    """Whether the model brings a chat template."""
    return bool(card.chat_template and card.chat_template.strip())


def render(
    card: ModelCard, conversations: Sequence[Sequence[Message]], *, system: str | None = None
) -> tuple[str, ...]:
    """Return what the model is to continue, for each conversation, ready for llama.cpp.

    The text ends where the assistant's answer begins. A BOS at its start is left out where llama.cpp puts one
    there itself. One child process renders all conversations, in 10 s plus 2 ms for each and in 1 GiB.

    Args:
        card: the model; its template, its BOS and its EOS are used.
        conversations: each begins with what the user says and ends with what is to be answered.
        system: a system prompt for all of them. Where the template refuses or leaves out system messages, it
            stands before the user's first message, followed by an empty line.

    Raises:
        GgufspecError: there is no template, or it does not do its work within these limits.
    """
    if not has_template(card):
        raise GgufspecError(f"{_name(card)} has no chat template", _RAW)
    assert card.chat_template is not None
    if len(card.chat_template) > _MOST_TEMPLATE:
        raise _failed(card, f"it has more than {_MOST_TEMPLATE:,} characters")
    if not conversations:
        return ()
    special = effective(card.vocabulary)
    bos = _token(card, special.bos_id)
    request = {
        "template": card.chat_template,
        "bos_token": bos,
        "eos_token": _token(card, special.eos_id),
        "system": system,
        "conversations": [[asdict(message) for message in each] for each in conversations],
        "memory_bytes": _MEMORY_BYTES,
    }
    texts = _run(card, request, timeout_s=_TIME_S + _TIME_PER_CONVERSATION_S * len(conversations))
    return tuple(_without(bos, text) for text in texts) if special.add_bos else texts


def _run(card: ModelCard, request: dict[str, Any], *, timeout_s: float) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        completed, out, err = proc.capture(
            [sys.executable, "-P", str(_SANDBOX), str(file)],
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            cwd=Path(scratch),
            timeout_s=timeout_s,
        )
    if completed.timed_out:
        raise _failed(card, f"it did not end within {timeout_s:.0f} s")
    answers: list[Any] = []
    with suppress(ValueError):  # a line that breaks off
        answers += [json.loads(line) for line in out.splitlines()]
    if answers and isinstance(answers[-1], dict):
        raise _failed(card, _reason(answers[-1]))
    if len(answers) != len(request["conversations"]):
        last = (err.strip().splitlines() or [completed.signal or f"exit code {completed.returncode}"])[-1]
        raise _failed(card, "it ran out of memory" if "MemoryError" in last else _one_line(last))
    return tuple(answers)


def _reason(answer: dict[str, Any]) -> str:
    """Say in one line what went wrong; the words are a stranger's."""
    match answer["error"]:
        case "MemoryError":
            return "it takes too much memory, or writes without end"
        case "RecursionError":
            return "it calls itself without end"
        case "SecurityError":
            return f"it tries to leave its sandbox: {_one_line(answer['message'])}"
        case "RefusedError":
            return _one_line(answer["message"])
        case kind:
            line = "" if answer["line"] is None else f"line {answer['line']}: "
            return f"{line}{_one_line(answer['message']) or kind}"


def _failed(card: ModelCard, why: str) -> GgufspecError:
    return GgufspecError(f"the chat template of {_name(card)} cannot be used: {why}", _RAW)


def _name(card: ModelCard) -> str:
    return _one_line(card.name or "") or "the model"


def _one_line(text: str) -> str:
    """A file from strangers must not send control characters to a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def _token(card: ModelCard, number: int | None) -> str:
    tokens = card.vocabulary.tokens
    return "" if number is None or tokens is None else tokens[number].decode(errors="replace")


def _without(bos: str, text: str) -> str:
    while bos and text.startswith(bos):
        text = text.removeprefix(bos)
    return text
