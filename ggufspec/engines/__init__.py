"""Interchangeable ways to measure one RunSpec once: a protocol and a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ggufspec.domain import Program, RunSpec
from ggufspec.engines.binary import BinaryEngine
from ggufspec.engines.measurement import Measurement
from ggufspec.llama.install import Install

__all__ = ["ENGINES", "Engine", "Measurement", "make"]

ENGINES: Mapping[str, Program] = {
    "binary": Program.TREE,
    "binary-simple": Program.SIMPLE,
}
"""Name -> the program that drafts; target and drafter alone always run in the plain program."""


class Engine(Protocol):
    """Measures one specification once; a failing run is a Measurement with a status, not an exception."""

    @property
    def name(self) -> str:
        """The row of ENGINES that made this engine."""

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command that ``measure`` would run."""

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once. Raw output goes to ``log`` with the endings ``.out`` and ``.err`` before it is read."""


def make(name: str, install: Install, *, timeout_s: float | None = None) -> Engine:
    """Return the engine of that name, measuring with ``install``."""
    return BinaryEngine(install=install, name=name, drafting_program=ENGINES[name], timeout_s=timeout_s)
