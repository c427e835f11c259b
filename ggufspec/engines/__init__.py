"""Interchangeable ways to measure one RunSpec once: a protocol and a table."""

from __future__ import annotations

from ggufspec.domain import ENGINES, Program
from ggufspec.engines.binary import BinaryEngine
from ggufspec.engines.engine import Engine, Measurement, keeps_loads
from ggufspec.engines.failures import Failure
from ggufspec.engines.inprocess import InprocessEngine
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
    "keeps_loads",
    "make",
]


def check_library(install: Install) -> None:
    """Refuse an install whose library the engine ``inprocess`` cannot use, before anything is measured.

    Raises:
        NoInstallError: it has none, or one that does not belong to the installed binding.
    """
    from ggufspec.engines.library import belonging  # loads what only this engine needs

    belonging.check_library(install)


def make(
    name: str,
    install: Install,
    *,
    timeout_s: float | None = None,
    capacity: int | None = None,
    per_arm: bool = False,
) -> Engine:
    """Return the engine of that name, measuring with ``install``.

    Args:
        name: a row of ENGINES.
        install: the llama.cpp to measure with.
        timeout_s: kill what runs or loads for longer.
        capacity: how many loads an engine may hold at once, where it keeps any; without it, one on a GPU
            and any number elsewhere, as the weights are mapped and shared there.
        per_arm: give each arm a load of its own, even where one load could serve several arms.
    """
    if capacity is None and install.gpu is not False:
        capacity = 1
    if name == "inprocess":
        from ggufspec.engines.inprocess import InprocessEngine  # the library's binding is slow to import

        return InprocessEngine(
            install=install, name=name, timeout_s=timeout_s, capacity=capacity, per_arm=per_arm
        )
    program = ENGINES[name]
    if program is not Program.SERVER:
        return BinaryEngine(install=install, name=name, drafting_program=program, timeout_s=timeout_s)
    from ggufspec.engines.server.engine import ServerEngine  # its HTTP client would slow every start

    return ServerEngine(install=install, name=name, capacity=capacity, timeout_s=timeout_s, per_arm=per_arm)
