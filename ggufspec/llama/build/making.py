"""What is made of a request: programs and libraries in ``final/bin`` of a work folder."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ggufspec.choices import Backend
from ggufspec.llama.progress import BuildProgress


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is known of it; see ``Built``."""

    version: str
    commit: str | None = None
    options: tuple[str, ...] = ()
    note: str | None = None
    cpu: tuple[str, ...] = ()


class MakeRequest(Protocol):
    """A llama.cpp to compile, or to fetch."""

    @property
    def backend(self) -> Backend:
        """For which it is."""

    @property
    def added(self) -> tuple[str, ...]:
        """Options of CMake that the user adds, as NAME=VALUE."""

    @property
    def origin(self) -> str:
        """Where it comes from: a kind and what identifies it."""

    def key(self) -> str:
        """Return the name of its folder."""

    def make(self, work: Path, log: Path) -> Generator[BuildProgress, None, Made]:
        """Make it in a work folder; see the classes."""
