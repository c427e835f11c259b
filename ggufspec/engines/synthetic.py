"""Which engines can let dice decide what is accepted, and with which llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec.domain import Method, Program
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import check_synthetic as check_program
from ggufspec.llama.install import Install

_ENGINE = "server"  # neither the drafting programs nor the library have dice


def check_synthetic(engine: str, install: Install, methods: Sequence[Method]) -> None:
    """Make sure that synthetic acceptance can be measured.

    Args:
        engine: the row of ENGINES that shall measure.
        install: the llama.cpp behind it.
        methods: what drafts; empty without a drafter.

    Raises:
        GgufspecError: the engine or its llama.cpp cannot, or something else than a model drafts.
    """
    if engine != _ENGINE:
        raise GgufspecError(
            f"the engine {engine} knows no synthetic acceptance: only llama-server does",
            f"add --engine {_ENGINE}",
        )
    if not methods or any(not method.needs_drafter for method in methods):
        raise GgufspecError(
            "synthetic acceptance needs a second model that drafts, and nothing else that does",
            "name one with --draft-model, and leave --method out",
        )
    check_program(install.executable(Program.SERVER))
