"""The flags that a llama.cpp program lists in its ``--help``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_DEFINITION = re.compile(
    r" {0,9}(-{1,2}[A-Za-z][\w-]*(?:[ =][^\s,]+)?(?:,\s+-{1,2}[A-Za-z][\w-]*(?:[ =][^\s,]+)?)*)"
)
_FLAG = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*")
_REMOVED = "the argument has been removed"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags that a program accepts, each with its help text.

    Builds up to b3682 gave every program one common parser, whose help also hides some flags that it
    accepts; ``generic`` marks them. Flags that are listed only as removed are left out.
    """

    help: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    generic: bool = False

    def __contains__(self, flag: object) -> bool:
        """Whether the flag is listed and not removed."""
        return flag in self.help

    def first(self, *spellings: str) -> str | None:
        """Return the first spelling that this program lists, or None."""
        return next((flag for flag in spellings if flag in self.help), None)

    def mentions(self, flag: str, word: str) -> bool:
        """Whether the flag is listed and its help contains a word, e.g. a value that it takes."""
        return word in self.help.get(flag, "")


def parse_help(text: str, *, plain: bool) -> Options:
    """Parse the text of ``--help``.

    Args:
        text: what the program printed.
        plain: whether the program only continues text; then ``--model-draft`` in its help shows the old
            common parser.
    """
    descriptions: dict[str, str] = {}
    flags: list[str] = []
    block: list[str] = []

    def close() -> None:
        description = "\n".join(block)
        if _REMOVED not in " ".join(description.split()):
            descriptions.update(dict.fromkeys(flags, description))

    for line in text.splitlines():
        match = _DEFINITION.match(line)
        if match:
            close()
            flags, block = _FLAG.findall(match[1]), [line]
        else:
            block.append(line)
    close()
    generic = plain and "--model-draft" in descriptions
    return Options(help=MappingProxyType(descriptions), generic=generic)
