"""Renders chat templates in a process of its own: ``python -P sandbox.py REQUEST``, started by ``chat.py``.

A template comes from strangers. Jinja's sandbox keeps it from Python's insides, a limit on memory from
filling the machine, the caller's time limit from running for ever; files it cannot write at all. This file is
run by its path and imports nothing of ours, so that little is loaded that could be reached.

REQUEST is a JSON file: template, bos_token, eos_token, system (or null), conversations ([[{role, content}]])
and memory_bytes. One line of JSON comes out per conversation: its text, or ``{"error", "message", "line"}``
for the first one that fails, which is the last.

What a template may use is what Hugging Face's transformers offers it (utils/chat_template_utils.py), but for
the date: ``strftime_now`` gives the same day every day, so that the same prompt is the same text next week.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TODAY = datetime(2024, 7, 26)  # the day that Llama 3's template takes where it is told none
_MOST_OVERHEAD = 16 << 20  # characters that a template may add to four times what it was given
_WORDS = re.compile(r"\w+")
_LOOKED_AT = 1000  # characters of a message


class RefusedError(TemplateError):
    """The template itself said no, or swallowed what it was given."""


class Generation(Extension):
    """``{% generation %}`` marks what an assistant says, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012  # the base class says how

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Template:
    """Compile a template with the whitespace rules and the names that templates rely on."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = TODAY.strftime
    return environment.from_string(source)


def render(template: Template, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of each conversation, up to where the assistant is to answer.

    A system prompt that the template refuses or leaves out goes in front of the user's first message.

    Raises:
        Exception: whatever a template may raise.
    """
    room = _MOST_OVERHEAD + 4 * sum(len(m["content"]) for c in request["conversations"] for m in c)
    for conversation in request["conversations"]:
        if request["system"] is None:
            text = _render(template, request, conversation, room)
        else:
            system = {"role": "system", "content": request["system"]}
            try:
                text = _render(template, request, [system, *conversation], room)
            except TemplateError:
                text = _render(template, request, _with_system(conversation, request["system"]), room)
        room -= len(text)
        yield text


def _render(template: Template, request: Mapping[str, Any], messages: list[dict[str, str]], room: int) -> str:
    pieces = []
    for piece in template.generate(
        messages=messages,
        add_generation_prompt=True,
        bos_token=request["bos_token"],
        eos_token=request["eos_token"],
        tools=None,
        documents=None,
    ):
        pieces.append(piece)
        room -= len(piece)
        if room < 0:
            raise MemoryError
    text = "".join(pieces)
    text.encode()  # half of a surrogate pair is no text
    if "\0" in text:
        raise RefusedError("it writes a NUL character")
    for role in ("user", "system"):
        said = next((m["content"] for m in reversed(messages) if m["role"] == role), "")
        # Templates trim and escape, but a text of which not even a long word arrives was left out.
        if max(_WORDS.findall(said[:_LOOKED_AT]), key=len, default="") not in text:
            raise RefusedError(f"it leaves out what the {role} says")
    return text


def _with_system(conversation: list[dict[str, str]], system: str) -> list[dict[str, str]]:
    first, *rest = conversation
    return [{**first, "content": f"{system}\n\n{first['content']}"}, *rest]


def _refuse(message: object) -> NoReturn:
    raise RefusedError(str(message))


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def main() -> None:
    """Answer the request that the first argument names."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for what, most in (
        (resource.RLIMIT_AS, request["memory_bytes"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # macOS knows the first by name only
            resource.setrlimit(what, (most, most))
    try:
        for text in render(compile_template(request["template"]), request):
            sys.stdout.write(json.dumps(text) + "\n")
    except Exception as error:  # noqa: BLE001 - a stranger's template may raise anything
        answer = {
            "error": type(error).__name__,
            "message": str(error)[:1000],
            "line": getattr(error, "lineno", None),
        }
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
