"""Text that strangers wrote (names, prompts, logs, answers), made safe for the terminal that shows it."""

from __future__ import annotations

import re
from typing import Any

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters of both sets, bidirectional overrides, bytes that are not UTF-8, and no characters."""


def harmless(text: str) -> str:
    """Return a text that cannot move the cursor, colour the terminal or turn its direction around.

    Line ends and tabs stay; every other control character becomes U+FFFD.
    """
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a harmless text without line ends and tabs, for a name in a sentence or in a table's cell."""
    return harmless(text).replace("\n", " ").replace("\t", " ")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return a value as harmless JSON: control characters become escapes, so that nothing is lost."""
    import json  # most commands print none

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
