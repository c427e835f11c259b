"""A conversation and its measurements as Markdown for people, and as JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ggufspec.console.conversation import (
    AnswerComparison,
    ChatAnswer,
    ChatSettings,
    Conversation,
    Entry,
    Turn,
    describe,
    figures,
)
from ggufspec.harmless import markdown
from ggufspec.units import format_number

SCHEMA = 1
_COLUMNS = ("who", "sampler", "tokens", "tokens/s", "accepted", "first token", "ended")
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)


def render(conversation: Conversation, facts: Mapping[str, Any], *, as_json: bool) -> str:
    """Return the text of a transcript file.

    Args:
        conversation: the turns and comparisons.
        facts: pair, models, llama.cpp and time.
        as_json: JSON, else Markdown.
    """
    if as_json:
        entries = [to_json(entry) for entry in conversation.entries]
        text = json.dumps({"schema": SCHEMA, **facts, "entries": entries}, indent=2, ensure_ascii=False)
        return f"{text}\n"
    listed = "".join(f"- {name}: {_code(value)}\n" for name, value in facts.items() if value)
    body = "".join(map(_markdown, conversation.entries))
    return f"# ggufspec chat: {markdown(str(facts['pair']))}\n\n{listed}{body}{_table(conversation)}"


def to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON; absent measurements are null."""
    if isinstance(entry, Turn):
        return {
            "kind": "turn",
            "said": entry.prompt,
            "settings": asdict(entry.settings),
            "answer": answer_to_json(entry.answer),
        }
    if isinstance(entry, AnswerComparison):
        return {
            "kind": "comparison",
            "said": entry.prompt,
            "settings": asdict(entry.settings),
            "answers": [answer_to_json(answer) for answer in entry.answers],
            "speed_up": entry.speed_up,
            "text": entry.verdict,
        }
    return {"kind": "cleared"}


def answer_to_json(answer: ChatAnswer) -> dict[str, Any]:
    """Return an answer as JSON, with the field names of stored results."""
    sample = answer.sample
    return {
        "role": answer.role.value,
        "text": answer.text,
        "ending": answer.ending.value,
        "spans": [span._asdict() for span in answer.spans],
        "gen_tokens": sample.gen_tokens,
        "gen_s": sample.gen_s,
        "decode_tps": sample.decode_tps,
        "draft": sample.n_draft,
        "n_drafted": sample.n_drafted,
        "n_accepted": sample.n_accepted,
        "accept_rate": sample.accept_rate,
        "prompt_tokens": sample.prompt_tokens,
        "cached_tokens": answer.cached_tokens,
        "ttft_s": sample.ttft_s,
        "wall_s": answer.wall_s,
    }


def _markdown(entry: Entry) -> str:
    if isinstance(entry, Turn):
        prompt = _fenced(entry.prompt) if entry.prompt else "(continue)\n"
        return f"\n## You\n\n{prompt}\n## {_heading(entry.answer)}\n\n{_answer(entry.answer)}"
    if isinstance(entry, AnswerComparison):
        parts = [f"\n## Compared\n\n{_fenced(entry.prompt)}"]
        parts += [f"\n### {_heading(answer)}\n\n{_answer(answer)}" for answer in entry.answers]
        if entry.verdict:
            speed_up = f"{entry.speed_up:.2f}× the target's tokens/s; " if entry.speed_up else ""
            parts.append(f"\nDrafting: {speed_up}text: {entry.verdict}.\n")
        return "".join(parts)
    return "\n---\n\nNew conversation.\n"


def _heading(answer: ChatAnswer) -> str:
    return answer.role.value.capitalize() + (f", γ={answer.sample.n_draft}" if answer.sample.n_draft else "")


def _answer(answer: ChatAnswer) -> str:
    return f"{_fenced(answer.text)}\n{' · '.join(figures(answer))}\n"


def _table(conversation: Conversation) -> str:
    """Return a table with a row for each answer."""
    rows = [_cells(settings, answer) for settings, answer in conversation.answers]
    if not rows:
        return ""
    table = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
    return "\n## Measured\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in table)


def _cells(settings: ChatSettings, answer: ChatAnswer) -> tuple[str, ...]:
    sample = answer.sample
    return (
        _heading(answer).lower(),
        describe(settings.sampling),
        str(sample.gen_tokens or 0),
        "" if sample.decode_tps is None else format_number(sample.decode_tps),
        "" if sample.accept_rate is None else f"{sample.accept_rate:.1%}",
        "" if sample.ttft_s is None else f"{sample.ttft_s:.3f} s",
        answer.ending.value,
    )


def _fenced(text: str) -> str:
    """Return a text in a fence that is longer than any fence in it."""
    longest = max((len(fence) for fence in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _code(value: object) -> str:
    return f"`{value}`" if "`" not in str(value) else markdown(str(value))
