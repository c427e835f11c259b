"""Make untrusted text (names, prompts, logs, answers) safe to print on a terminal."""

from __future__ import annotations

import re
from typing import Any

CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
"""A pattern: C0 and C1 control characters, bidirectional overrides, surrogates and noncharacters."""

_TAG = r"<(?=[A-Za-z/!?])"  # CommonMark 6.6: what can begin HTML, or an address
_LINK = r"(?<!\\)\](?=\()"  # between a link's text and its address


def harmless(text: str) -> str:
    """Return a text that cannot move the cursor, set colours or reverse the text direction.

    Line feeds and tabs stay. Every other control character becomes U+FFFD.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():  # faster than compiling the pattern
        return text
    return re.sub(CONTROL, "\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return a harmless text on one line, without tabs: for a name in a sentence or in a table cell."""
    return harmless(text).replace("\n", " ").replace("\t", " ")


def markdown(text: str) -> str:
    """Return a text in which Markdown sees neither HTML nor a link: names of files may have both.

    A ``<`` that begins no tag stays, as in "< 0.1". Escaping twice changes nothing more.
    """
    return re.sub(_LINK, r"\\]", re.sub(_TAG, "&lt;", text))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as harmless JSON; control characters become escape sequences."""
    import json  # most commands do not need it

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return re.sub(CONTROL, lambda match: f"\\u{ord(match[0]):04x}", text)
