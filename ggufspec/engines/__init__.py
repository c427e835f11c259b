"""Interchangeable ways to measure one RunSpec once: a protocol and a table."""

from __future__ import annotations

from collections.abc import Mapping

from ggufspec.domain import ENGINES, Program, RunSpec
from ggufspec.engines.binary import BinaryEngine
from ggufspec.engines.engine import Engine, Measurement
from ggufspec.engines.failures import Failure
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.several import BuildsEngine
from ggufspec.engines.synthetic import check_synthetic
from ggufspec.llama.install import Install

__all__ = [
    "ENGINES",
    "Engine",
    "Failure",
    "InprocessEngine",
    "Measurement",
    "check_library",
    "check_synthetic",
    "make",
    "make_for_builds",
    "program_for",
]


def program_for(name: str, spec: RunSpec) -> Program:
    """Return the program that an engine runs for a specification, or whose rules apply."""
    drafting = ENGINES[name]
    return drafting if spec.drafting is not None or drafting is Program.SERVER else Program.PLAIN


def check_library(install: Install) -> None:
    """Refuse an install whose library the engine ``inprocess`` cannot use, before anything is measured.

    Raises:
        NoInstallError: it has none, or one that does not belong to the installed binding.
    """
    from ggufspec.engines.library import belonging  # loads what only this engine needs

    belonging.check_library(install)


def make(
    name: str, install: Install, *, timeout_s: float | None = None, capacity: int | None = None
) -> Engine:
    """Return the engine of that name, measuring with ``install``.

    Args:
        name: a row of ENGINES.
        install: the llama.cpp to measure with.
        timeout_s: kill what runs or loads for longer.
        capacity: how many loads an engine may hold at once, where it keeps any; without it, one on a GPU
            and any number elsewhere, as the weights are mapped and shared there.
    """
    if capacity is None and install.gpu is not False:
        capacity = 1
    if name == "inprocess":
        from ggufspec.engines.inprocess import InprocessEngine  # the library's binding is slow to import

        return InprocessEngine(install=install, name=name, timeout_s=timeout_s, capacity=capacity)
    program = ENGINES[name]
    if program is not Program.SERVER:
        return BinaryEngine(install=install, name=name, drafting_program=program, timeout_s=timeout_s)
    from ggufspec.engines.server.engine import ServerEngine  # its HTTP client would slow every start

    return ServerEngine(install=install, name=name, capacity=capacity, timeout_s=timeout_s)


def make_for_builds(
    name: str,
    builds: Mapping[str, Install],
    *,
    timeout_s: float | None = None,
    capacity: int | None = None,
) -> Engine:
    """Return one engine that measures with several llama.cpps, by ``RunSpec.build``; see ``make``."""
    return BuildsEngine(
        engines={
            build: make(name, install, timeout_s=timeout_s, capacity=capacity)
            for build, install in builds.items()
        }
    )
