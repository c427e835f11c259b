"""Conversations to text: the model's own chat template, rendered in a sandbox, turn by turn."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ggufspec import proc, temporary, userfiles
from ggufspec.domain import Prompt, Request
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles.compat import effective
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.prompts.bodies import shown_text

__all__ = ["Message", "Render", "has_template", "render", "with_template"]

_SANDBOX = Path(__file__).with_name("sandbox.py")
_MEMORY_BYTES = 1 << 30
_TIME_S = 10.0
_TIME_PER_CONVERSATION_S = 0.002
_MOST_TEMPLATE = 1 << 20  # characters; long templates have some 20,000
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")  # what Python needs; no tokens, no keys
_RAW = "--raw gives the prompts to the model as they are, without a template"


@dataclass(frozen=True)
class Message:
    """One message of a conversation; ``role`` is system, user or assistant."""

    role: str
    content: str


Render = Callable[[Sequence[Message]], str]
"""A function that makes a prompt's text from a conversation that ends with the user's turn."""


def has_template(card: ModelCard) -> bool:
    """Whether the model has a chat template."""
    return bool(card.chat_template and card.chat_template.strip())


def with_template(card: ModelCard, file: Path | None) -> ModelCard:
    """Return a model with the chat template of a file in place of its own.

    Raises:
        GgufspecError: the file cannot be read.
    """
    if file is None:
        return card
    try:
        return replace(card, chat_template=userfiles.read_text(file))
    except OSError as error:
        raise GgufspecError(
            f"cannot read the chat template {file}: {error.strerror}",
            "name a file with a template in Jinja, such as those in llama.cpp's models/templates",
        ) from error


def render(
    card: ModelCard, conversations: Sequence[Sequence[Message]], *, system: str | None = None
) -> tuple[str, ...]:
    """Return for each conversation the text that the model is to continue, ready for llama.cpp.

    The text ends where the assistant's answer begins. A BOS at its start is removed if llama.cpp adds one
    itself. One child process renders all conversations, within 1 GiB and 10 s plus 2 ms for each.

    Args:
        card: the model; its template, its BOS and its EOS are used.
        conversations: each starts and ends with a message of the user.
        system: a system prompt for all of them. If the template refuses or drops system messages, it is put
            before the user's first message, followed by an empty line.

    Raises:
        GgufspecError: there is no template, or it fails or exceeds these limits.
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
        "conversations": [[asdict(message) for message in conversation] for conversation in conversations],
        "memory_bytes": _MEMORY_BYTES,
    }
    texts = _run(card, request, timeout_s=_TIME_S + _TIME_PER_CONVERSATION_S * len(conversations))
    if not (special.add_bos and bos):
        return texts
    return tuple(re.sub(rf"\A(?:{re.escape(bos)})+", "", text) for text in texts)


def _run(card: ModelCard, request: dict[str, Any], *, timeout_s: float) -> tuple[str, ...]:
    with temporary.folder() as scratch:
        file = scratch / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        completed, out, err = proc.capture(
            [sys.executable, "-P", str(_SANDBOX), str(file)],
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            cwd=scratch,
            timeout_s=timeout_s,
        )
    if completed.timed_out:
        raise _failed(card, f"it did not end within {timeout_s:.0f} s")
    answers: list[Any] = []
    with suppress(ValueError):  # an incomplete line
        answers += [json.loads(line) for line in out.splitlines()]
    if answers and isinstance(answers[-1], dict):
        raise _failed(card, _reason(answers[-1]))
    if len(answers) != len(request["conversations"]):
        last = (err.strip().splitlines() or [completed.signal or f"exit code {completed.returncode}"])[-1]
        raise _failed(card, "it ran out of memory" if "MemoryError" in last else _one_line(last))
    return tuple(answers)


def _reason(answer: dict[str, Any]) -> str:
    """Return what went wrong, in one line; the text comes from the template."""
    match answer["error"]:
        case "MemoryError":
            return "it needs too much memory, or its output does not end"
        case "RecursionError":
            return "its recursion does not end"
        case "SecurityError":
            return f"it uses something that the sandbox forbids: {_one_line(answer['message'])}"
        case "RefusedError":
            return _one_line(answer["message"])
        case error_type:
            line = "" if answer["line"] is None else f"line {answer['line']}: "
            return f"{line}{_one_line(answer['message']) or error_type}"


def _failed(card: ModelCard, why: str) -> GgufspecError:
    return GgufspecError(f"the chat template of {_name(card)} cannot be used: {why}", _RAW)


def _name(card: ModelCard) -> str:
    return _one_line(card.name or "") or "the model"


def _one_line(text: str) -> str:
    """Return a text in one line without control characters, at most 200 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def _token(card: ModelCard, number: int | None) -> str:
    tokens = card.vocabulary.tokens
    return "" if number is None or tokens is None else tokens[number].decode(errors="replace")


class PromptTurns:
    """The turns of one prompt of a suite, made one by one as the target answers them.

    Attributes:
        made: the turns so far, without followups; at first the prompt's own text.
    """

    def __init__(self, prompt: Prompt, render: Render | None, *, warm: bool = False) -> None:
        """Start with the first turn.

        Args:
            prompt: of a suite; its ``followups`` are the later turns.
            render: makes the text of a later turn; None joins turns and answers as they are.
            warm: whether later turns begin with the conversation so far in the cache.
        """
        self.made = [replace(prompt, followups=(), turn=1 if prompt.followups else 0)]
        self._warm = warm
        self._followups = prompt.followups
        self._render = render
        self._messages: list[Message] = []

    @property
    def is_complete(self) -> bool:
        """Whether all turns are made."""
        return len(self.made) > len(self._followups)

    def add_recorded(self) -> None:
        """Make the turns that are known before anything more is answered, as their answers were recorded."""
        while not self.is_complete and isinstance(self._followups[len(self.made) - 1], Request):
            self.add_answer("")

    def add_answer(self, answer: str) -> None:
        """Make the next turn from the target's answer to the last one.

        Args:
            answer: the target's text.

        Raises:
            IndexError: all turns are made.
        """
        last, followup = self.made[-1], self._followups[len(self.made) - 1]
        number = len(self.made) + 1
        turn = replace(last, id=f"{self.made[0].id}#{number}", turn=number, history=0)
        if last.request is not None and last.is_chat:
            if isinstance(followup, Request):  # with the answer that was recorded
                said = followup.messages
            else:
                said = [
                    {"role": "assistant", "content": without_thinking(answer)},
                    {"role": "user", "content": followup},
                ]
            text = f"{last.text}\n\n{shown_text(said)}"
            history = len(last.text) if self._warm else 0
            request = last.request.replace(messages=[*last.request.messages, *said])
            shown = shown_text(said[1:])
            self.made.append(replace(turn, text=text, message=shown, history=history, request=request))
            return
        assert isinstance(followup, str)  # only requests have recorded turns
        turn = replace(turn, message=followup)
        self._messages += [Message("user", last.message or last.text), Message("assistant", answer)]
        text = (
            f"{last.text}{answer}\n\n{followup}\n\n"
            if self._render is None
            else self._render([*self._messages, Message("user", followup)])
        )
        # A template may write earlier messages otherwise now, such as an answer without its thinking.
        same = os.path.commonprefix((last.text + answer, text))  # noqa: RUF071  # characters are meant
        kept = len(same) if self._warm else 0
        self.made.append(replace(turn, text=text, history=kept))


def recorded_turns(prompt: Prompt) -> list[Prompt]:
    """Return the turns of a prompt that are known before anything is answered, each with all messages."""
    turns = PromptTurns(prompt, None)
    turns.add_recorded()
    return turns.made


def without_thinking(answer: str) -> str:
    """Return what an answer says behind its thinking, which templates leave out of earlier turns, too."""
    return answer.partition("</think>")[2].lstrip() if answer.startswith("<think>") else answer
