"""Interchangeable ways to measure one RunSpec once: a protocol and a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggufspec import lazy
from ggufspec.domain import ENGINES, DraftSampling, Method, Program, Sampling
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from ggufspec.engines.engine import (
        BuildsEngine,
        Engine,
        Measurement,
        failure_error,
        keeps_loads,
        program_for,
    )
    from ggufspec.engines.inprocess import InprocessEngine
    from ggufspec.engines.library.selftest import Library, check_library
    from ggufspec.llama.install import Install

__all__ = [
    "ENGINES",
    "BuildsEngine",
    "Engine",
    "InprocessEngine",
    "Measurement",
    "check_draft_sampling",
    "check_library",
    "check_requests",
    "check_synthetic",
    "failure_error",
    "keeps_loads",
    "make",
    "program_for",
]

__getattr__, __dir__ = lazy.attach(__name__)  # a worker of `library` needs none of these


_OF_PROGRAMS = frozenset({"grammar", "json_schema"})
"""The fields of a request that programs have as a flag."""


def check_requests(engine: str, install: Install, needs: frozenset[str], *, drafting: bool) -> None:
    """Make sure that an engine can ask what prompts ask beside their texts.

    Args:
        engine: the row of ENGINES to measure with.
        install: the llama.cpp to measure with.
        needs: the fields of all requests; ``IMAGE`` for a projector, too.
        drafting: whether anything drafts.

    Raises:
        NoInstallError: it lacks a program.
        GgufspecError: naming what the engine or its llama.cpp cannot ask.
    """
    if not needs:
        return
    from ggufspec.llama.command import flags

    program = ENGINES[engine]
    if program is Program.SERVER:
        options = install.executable(program).options
        if "messages" in needs and not options.mentions("--jinja", "default: enabled"):
            raise GgufspecError(
                f"the llama-server in {install.root} is too old for prompts with "
                f"{', '.join(sorted(needs))}: it does not read all chat templates",
                "use llama.cpp b8643 or newer: `ggufspec build` makes one",
            )
        return
    # The tree program samples its drafts under the grammar, too, and the library has none.
    able = frozenset() if engine == "inprocess" or (drafting and program is Program.TREE) else _OF_PROGRAMS
    lacking = sorted(needs - able) or [
        name
        for name in sorted(needs)
        for used in (Program.PLAIN, program if drafting else Program.PLAIN)
        if install.executable(used).options.first(*flags.SPELLINGS[name]) is None
    ]
    if lacking:
        raise GgufspecError(f"the engine {engine} cannot ask for {', '.join(lacking)}", "use --engine server")


def check_synthetic(engine: str, install: Install, methods: Sequence[Method]) -> None:
    """Make sure that synthetic acceptance can be measured.

    Args:
        engine: the row of ENGINES to measure with.
        install: the llama.cpp to measure with.
        methods: the drafting methods; empty without a drafter.

    Raises:
        GgufspecError: the engine or its llama.cpp does not support it, or not only a model drafts.
    """
    if ENGINES[engine] is not Program.SERVER:
        raise GgufspecError(
            f"the engine {engine} does not support synthetic acceptance: only llama-server does",
            "add --engine server",
        )
    if not methods or any(not method.drafts_with_model for method in methods):
        raise GgufspecError(
            "synthetic acceptance needs a draft model, and no other drafting method",
            "name one with --draft-model, and leave --method out",
        )
    from ggufspec.llama import command

    command.check_synthetic(install.executable(Program.SERVER))


def check_draft_sampling(
    engine: str,
    install: Install,
    methods: Sequence[Method],
    draft_samplings: Sequence[DraftSampling | None],
    sampling: Sampling,
) -> None:
    """Make sure that drafts can be sampled as requested.

    Args:
        engine: the row of ENGINES to measure with.
        install: the llama.cpp to measure with.
        methods: the drafting methods.
        draft_samplings: how the drafts of models are to be chosen.
        sampling: how the target chooses tokens.

    Raises:
        GgufspecError: the engine, its llama.cpp or every method lacks that choice, or it changes nothing.
    """
    from ggufspec.llama import command

    command.check_draft_sampling(install, ENGINES[engine])
    if not any(method.samples_drafts for method in methods):
        able = " and ".join(method.value for method in Method if method.samples_drafts)
        raise GgufspecError(
            f"drafts by {', '.join(method.value for method in methods)} are not sampled: llama-server has "
            f"that choice for {able} alone",
            "leave --draft-sampling out",
        )
    if DraftSampling.PROBABILISTIC in draft_samplings and sampling.greedy:
        raise GgufspecError(
            "probabilistic drafts are sampled at the target's temperature, which is 0: they would be greedy",
            "add --temp 0.8, the default of llama-server, or leave --draft-sampling out",
        )


def make(
    name: str,
    install: Install,
    *,
    timeout_s: float | None = None,
    capacity: int | None = None,
    per_arm: bool = False,
    with_mtp: bool = False,
) -> Engine:
    """Return an engine by name.

    Args:
        name: a row of ENGINES.
        install: the llama.cpp to measure with.
        timeout_s: time limit for a run and for a load.
        capacity: how many processes with loaded models an engine may keep at once. None for one if a GPU is
            used, and no limit otherwise, because the system shares mapped weights between processes.
        per_arm: load each arm separately, even if one load could serve several arms.
        with_mtp: load targets with their layers for MTP, which ``inprocess`` can then trace.
    """
    if capacity is None and install.gpu is not False:
        capacity = 1
    if name == "inprocess":
        from ggufspec.engines.inprocess import InprocessEngine

        return InprocessEngine(
            install=install,
            name=name,
            timeout_s=timeout_s,
            capacity=capacity,
            per_arm=per_arm,
            with_mtp=with_mtp,
        )
    if ENGINES[name] is not Program.SERVER:
        from ggufspec.engines.binary import BinaryEngine

        return BinaryEngine(install=install, name=name, timeout_s=timeout_s)
    from ggufspec.engines.server.engine import ServerEngine  # its HTTP client is slow to import

    return ServerEngine(install=install, name=name, capacity=capacity, timeout_s=timeout_s, per_arm=per_arm)
