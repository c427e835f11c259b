"""Suites in TOML."""

from __future__ import annotations

import base64
import mimetypes
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ggufspec import userfiles
from ggufspec.domain import IMAGE, Prompt
from ggufspec.errors import GgufspecError
from ggufspec.prompts import bodies
from ggufspec.prompts.suite import BadPromptError, PromptEntry, PromptSuite, assemble, build

_KINDS = {"messages": True, "continuations": False}
_SUITE_KEYS = {"kind", "licence", "prompt"}
_PROMPT_KEYS = frozenset({"id", "text", "category", "reason", "followups", "warmup", bodies.EVERY_TURN})
_MOST_IMAGE = 64 << 20  # bytes
_HEADING = re.compile(r"[ \t]*\[\[[ \t]*prompt[ \t]*\]\]")
_FORM = (
    "a [[prompt]] needs an id, and a text or messages; it may have category, followups = [...], "
    "warmup = true, a reason, and fields of a request such as tools or json_schema"
)


def read_toml(path: Path, text: str) -> PromptSuite:
    """Read a suite.

    ``kind`` is "messages" (to an assistant, through the chat template) or "continuations", the default.
    ``licence`` names the licence of the texts.

    Raises:
        GgufspecError: the file is not TOML, or not in this format.
    """
    try:
        suite = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise GgufspecError(f"{path} is not a prompt suite: {error}", _FORM) from error
    kind = suite.get("kind", "continuations")
    if kind not in _KINDS:
        raise GgufspecError(f'{path}: the kind is {kind!r}, not "messages" or "continuations"', _FORM)
    tables = suite.get("prompt", [])
    strange = sorted(suite.keys() - _SUITE_KEYS)
    if strange or not isinstance(tables, list):
        problem = (
            f"has an unknown key {strange[0]!r}" if strange else "has a 'prompt' that is not a [[prompt]]"
        )
        raise GgufspecError(f"{path} {problem}", _FORM)
    licence = suite.get("licence")
    if licence is not None and (not isinstance(licence, str) or not licence.isprintable()):
        raise GgufspecError(f"{path}: the licence is not one line of text", _FORM)
    entries = _entries(path, text, tables)
    return replace(assemble(path.stem, path, entries, instructions=_KINDS[kind]), licence=licence)


def make_prompt(**fields: Any) -> Prompt:
    """Return a prompt of the fields that a ``[[prompt]]`` of a suite has: ``id``, ``text``, ``messages``, ….

    Raises:
        GgufspecError: a field is missing, unknown or of the wrong type.
    """
    try:
        return _entry("the prompt", fields, Path()).prompt
    except BadPromptError as problem:
        raise GgufspecError(
            f"the prompt {fields.get('id', '')}: {problem}", problem.hint or _FORM
        ) from problem


def _entries(path: Path, text: str, tables: list[Any]) -> Iterator[PromptEntry]:
    lines = [number for number, line in enumerate(text.splitlines(), start=1) if _HEADING.match(line)]
    for index, table in enumerate(tables):
        # A text may contain such a heading. Then line numbers are unknown, and the prompt's number is used.
        where = f"{path}:{lines[index]}" if len(lines) == len(tables) else f"{path}, prompt {index + 1}"
        try:
            yield _entry(where, table, path.parent)
        except BadPromptError as problem:
            raise GgufspecError(f"{where}: {problem}", problem.hint or _FORM) from problem


def _embed(part: Any, folder: Path) -> Any:
    """Return a part of a message with its image as a data: URL, in place of the path of a file."""
    image = part.get(IMAGE) if isinstance(part, dict) else None
    name = image.get("url") if isinstance(image, dict) else image
    if not isinstance(name, str) or ":" in name:
        return part
    file = folder / name
    try:
        content = userfiles.read(file, most_bytes=_MOST_IMAGE)
    except OSError as error:
        raise BadPromptError(f"cannot read the image {file}: {error.strerror}", "check its path") from error
    kind = mimetypes.guess_type(file.name)[0] or "image/png"
    return part | {IMAGE: {"url": f"data:{kind};base64,{base64.b64encode(content).decode()}"}}


def _entry(where: str, table: Any, folder: Path) -> PromptEntry:
    if not isinstance(table, dict):
        raise BadPromptError("it is not a table")
    if isinstance(table.get("messages"), list):
        messages = [
            message | {"content": [_embed(part, folder) for part in message["content"]]}
            if isinstance(message, dict) and isinstance(message.get("content"), list)
            else message
            for message in table["messages"]
        ]
        table = table | {"messages": messages}
    if strange := sorted(table.keys() - _PROMPT_KEYS - bodies.ASKED - {"messages"}):
        raise BadPromptError(f"a prompt has no key {strange[0]!r}")
    if "id" not in table:
        raise BadPromptError("the id is missing")
    if ("text" in table) == ("messages" in table):
        raise BadPromptError("it has both a text and messages" if "text" in table else "the text is missing")
    followups, warmup = table.get("followups", []), table.get("warmup", False)
    if not isinstance(followups, list) or not isinstance(warmup, bool):
        raise BadPromptError("followups must be a list of texts, and warmup true or false")
    turns = [*([table["text"]] if "text" in table else []), *followups]
    make = build
    if "messages" in table or bodies.is_request(table):
        make = partial(bodies.build_asking, table, own=_PROMPT_KEYS)
    prompt = make(name=table["id"], turns=turns, category=table.get("category"))
    return PromptEntry(where, prompt, warmup)
