"""llama.cpp's programs in a command, whatever stands before them: wrappers, containers, paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from ggufspec.choices import Program

PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "llama-server": Program.SERVER,
        "llama-cli": Program.PLAIN,
        "llama-completion": Program.PLAIN,
        "llama-speculative": Program.TREE,
        "llama-speculative-simple": Program.SIMPLE,
    }
)
"""Names that are clear wherever they stand."""

_EARLY: Mapping[str, Program] = MappingProxyType(
    {"main": Program.PLAIN, "server": Program.SERVER, "speculative": Program.TREE}
)
"""Names until June 2024: words of English, so only where an option follows, first or in a path."""

_UNIFIED: Mapping[str, Program] = MappingProxyType(
    {"serve": Program.SERVER, "server": Program.SERVER, "completion": Program.PLAIN, "cli": Program.PLAIN}
)
"""Subcommands of the program ``llama``."""

_IMAGE = re.compile(r"(?:^|[/:-])llama[.-]?cpp[\w.-]*:(server|light|full)[\w.-]*(?:@sha256:\w+)?$")
_OF_IMAGES: Mapping[str, Program] = MappingProxyType({"server": Program.SERVER, "light": Program.PLAIN})
_OF_FULL_IMAGES: Mapping[str, Program] = MappingProxyType(
    {"--server": Program.SERVER, "-s": Program.SERVER, "--run": Program.PLAIN, "-r": Program.PLAIN}
)


class FoundProgram(NamedTuple):
    """A program, as it was written, and the place of its first option among the words."""

    name: str
    program: Program
    first_option: int

    @property
    def path(self) -> PurePosixPath | None:
        """Where it is; None for a name alone."""
        return PurePosixPath(self.name) if "/" in self.name else None


def find_program(words: Sequence[str]) -> FoundProgram | None:
    """Return the first of llama.cpp's programs among the words of a command; None without any."""
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if image := _IMAGE.search(word):
            program = _OF_IMAGES.get(image[1]) or _OF_FULL_IMAGES.get(following)
            if program is not None:
                return FoundProgram(image[0].lstrip("/:-"), program, place + 1 + (image[1] == "full"))
        name = re.split(r"[/\\]", word)[-1].removesuffix(".exe")
        if name in PROGRAMS:
            return FoundProgram(word, PROGRAMS[name], place + 1)
        if name == "llama" and following in _UNIFIED:
            return FoundProgram(word, _UNIFIED[following], place + 2)
        if name in _EARLY and following.startswith("-") and (place == 0 or "/" in word):
            return FoundProgram(word, _EARLY[name], place + 1)
    return None


def program_of_image(image: str) -> FoundProgram | None:
    """Return the program that an image of a container runs by itself."""
    return find_program([image])
