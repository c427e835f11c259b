"""Renders chat templates in a process of its own: ``python -P sandbox.py REQUEST``, started by ``chat.py``.

A template is untrusted. Jinja's sandbox protects Python's internals; limits on memory, on the size of files
and, by the caller, on time protect the machine. This file is run by its path and imports no other module of
ggufspec, so that a template can reach little code.

REQUEST is a JSON file: template, bos_token, eos_token, system (or null), conversations ([[{role, content}]])
and memory_bytes. The output has one line of JSON for each conversation: its text, or ``{"error", "message",
"line"}`` for the first that fails, which ends the output.

Templates have the functions that Hugging Face's transformers offers (utils/chat_template_utils.py), except
that ``strftime_now`` always returns the same day, so that the same prompt always gives the same text.
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

TODAY = datetime(2024, 7, 26)  # the default of Llama 3's template
_MOST_OVERHEAD = 16 << 20  # characters that a template may add to four times its input
_WORDS = re.compile(r"\w+")
_LOOKED_AT = 1000  # characters of a message that are searched


class RefusedError(TemplateError):
    """The template raised an exception, or dropped a message."""


class Generation(Extension):
    """``{% generation %}`` marks the assistant's text for training; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012  # as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(source: str) -> Template:
    """Compile a template with the whitespace rules and functions that templates expect."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = TODAY.strftime
    return environment.from_string(source)


def render(template: Template, request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of each conversation, up to where the assistant is to answer.

    If the template refuses or drops a system prompt, it is put before the user's first message.

    Raises:
        Exception: a template may raise any exception.
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
                first, *rest = conversation
                joined = {**first, "content": f"{request['system']}\n\n{first['content']}"}
                text = _render(template, request, [joined, *rest], room)
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
    text.encode()  # raises for half of a surrogate pair
    if "\0" in text:
        raise RefusedError("it writes a NUL character")
    for role in ("user", "system"):
        content = next((m["content"] for m in reversed(messages) if m["role"] == role), "")
        # Templates trim and escape, but a message of which not even the longest word is there was dropped.
        if max(_WORDS.findall(content[:_LOOKED_AT]), key=len, default="") not in text:
            raise RefusedError(f"it leaves out the {role}'s message")
    return text


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
    """Render the request file in the first argument."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for resource_type, most in (
        (resource.RLIMIT_AS, request["memory_bytes"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # macOS knows the first by name only
            resource.setrlimit(resource_type, (most, most))
    try:
        for text in render(compile_template(request["template"]), request):
            sys.stdout.write(json.dumps(text) + "\n")
    except Exception as error:  # noqa: BLE001 - an untrusted template may raise anything
        answer = {
            "error": type(error).__name__,
            "message": str(error)[:1000],
            "line": getattr(error, "lineno", None),
        }
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
