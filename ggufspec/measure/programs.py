"""Which engine measures, and whether the llama.cpps in use have the programs and options that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from ggufspec import engines, serving
from ggufspec.domain import Chain, Method, Program
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import check_chain, commands
from ggufspec.llama.install import Install
from ggufspec.measure import traffic
from ggufspec.measure.models import ChosenModels
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles.compat import judging, usable_methods
from ggufspec.options import BenchOptions

_LIMITS = {
    "server": "it measures memory for a process, not for a run",
    "inprocess": "it drafts only with a draft model, and serves one request after another",
}
"""Engine -> what it cannot measure, for those that are not the first choice."""


class ChosenEngine(NamedTuple):
    """A row of ENGINES, and notes on why it is not the first one."""

    name: str
    notes: tuple[str, ...] = ()


def find_engine(
    request: BenchOptions, installs: Sequence[Install], ways: tuple[Chain, ...], *, drafting: bool
) -> ChosenEngine:
    """Return the engine that is named, or the first one that can measure.

    Raises:
        GgufspecError: it cannot measure what is requested.
    """
    if request.engine is None:
        chosen = choose_engine(installs, ways, drafting=drafting)
        traffic.check_engine(request.users, chosen.name)
        return chosen
    traffic.check_engine(request.users, request.engine)
    check_engine(request.engine, installs, ways, drafting=drafting)
    return ChosenEngine(request.engine)


def choose_engine(installs: Sequence[Install], ways: Sequence[Chain], *, drafting: bool) -> ChosenEngine:
    """Return the first engine that can measure with all of these llama.cpps.

    Args:
        installs: the llama.cpps to measure with.
        ways: what drafts.
        drafting: whether there is a drafter.

    Raises:
        GgufspecError: none can; the message says what the engine lacks that comes nearest.
    """
    failures: dict[str, GgufspecError] = {}
    for name in engines.ENGINES:
        try:
            check_engine(name, installs, ways, drafting=drafting)
        except GgufspecError as error:
            failures[name] = error
        else:
            return ChosenEngine(name, _describe_choice(name, failures))
    if any(not install.programs for install in installs):
        raise failures["inprocess"]
    if all(way == Chain(Method.DRAFT_MODEL) for way in ways):
        raise failures["binary"]
    nearest = (failures["binary-simple"], failures["server"])
    for failure in nearest:
        if not isinstance(failure, NoInstallError):
            raise failure
    way = next(way for way in ways if way != Chain(Method.DRAFT_MODEL))
    lacking = next(install for install in installs if Program.SERVER not in install.programs)
    raise NoInstallError(
        f"no program of the llama.cpp in {lacking.root} drafts by {way}",
        "it lacks llama-server and llama-speculative-simple; `ggufspec build` makes a complete one",
    )


def check_engine(name: str, installs: Sequence[Install], ways: Sequence[Chain], *, drafting: bool) -> None:
    """Miss a program now, not after the target has been measured; see ``choose_engine``.

    Raises:
        NoInstallError: a llama.cpp lacks a program or the library.
        GgufspecError: the engine cannot measure with several, or does not draft in one of the ways.
    """
    if name == "inprocess" and len(installs) > 1:
        raise GgufspecError(
            "the engine inprocess measures one llama.cpp",
            "use --engine binary or server to compare two",
        )
    for install in installs:
        _check_install(name, install, ways, drafting=drafting)


def _check_install(name: str, install: Install, ways: Sequence[Chain], *, drafting: bool) -> None:
    others = [way for way in ways if way != Chain(Method.DRAFT_MODEL)]
    if name == "inprocess":
        if others:
            raise GgufspecError(
                f"the engine {name} drafts only with a draft model, not by {others[0]}",
                "use --engine server or binary-simple"
                if install.programs
                else "`ggufspec build` makes a llama.cpp with programs that can",
            )
        engines.check_library(install)
        return
    drafts_with = engines.ENGINES[name]
    install.executable(Program.SERVER if drafts_with is Program.SERVER else Program.PLAIN)
    for way in others:
        check_chain(install, drafts_with, way)
    if drafting:
        program = install.executable(drafts_with)
        if drafts_with is Program.SERVER and not commands.can_draft(program.options):
            raise GgufspecError(f"the {program.name} in {install.root} cannot draft", "use --engine binary")
        if drafts_with is Program.SERVER and not commands.reports_drafts(install.build_number):
            raise GgufspecError(
                f"the {program.name} in {install.root} does not report how many tokens it drafts",
                "use --engine binary or binary-simple, or llama.cpp b4984 or newer",
            )


def describe_engine(name: str, install: Install) -> tuple[str, ...]:
    """Return the note on an engine that was chosen for a llama.cpp without programs; none for others."""
    if install.programs:
        return ()
    return (f"engine: {name}, because the llama.cpp in {install.root} has no programs; {_LIMITS[name]}",)


def _describe_choice(name: str, failures: dict[str, GgufspecError]) -> tuple[str, ...]:
    """Return the note on an engine that was chosen because others cannot measure; none on the first."""
    if not failures:
        return ()
    reason = failures["binary"].message
    limit = f"; {_LIMITS[name]}" if name in _LIMITS else ""
    return (f"engine: {name}, because {reason}{limit}",)


def make_engine(
    name: str,
    request: BenchOptions,
    install: Install,
    builds: Mapping[str, Install],
    capacity: int,
) -> engines.Engine:
    """Return the engine by its name; for several llama.cpps, one that measures each arm with its own."""
    make = serving.make if request.users else engines.make
    if builds:
        return engines.make_for_builds(
            name, builds, timeout_s=request.timeout, capacity=capacity, per_arm=True, make_one=make
        )
    return make(name, install, timeout_s=request.timeout, capacity=capacity, per_arm=True)


def check_options(sweep: Sweep, engine: engines.Engine, builds: Mapping[str, Install]) -> None:
    """Miss an option now, not after the target has been measured.

    One llama.cpp may leave out an option that it does not know; of several, all have to know it.

    Raises:
        GgufspecError: naming what is lacking; of several llama.cpps, also which of them lacks it.
    """
    lacking: dict[str, list[str]] = {}
    few = replace(
        sweep.thinned(1),
        draft_sizes=(),
        p_mins=(max(sweep.p_mins),),
        runtimes=sweep.runtimes,
        caches=sweep.caches,
        draft_caches=sweep.draft_caches,
    )
    for arm in (arm for block in few.blocks() for arm in block.arms):
        if arm.build is None:
            engine.argv(arm)
            continue
        try:
            engine.argv(arm)
            program = engines.program_for(engine.name, arm)
            lacking.setdefault(arm.build, []).extend(commands.find_ignored(arm, builds[arm.build], program))
        except GgufspecError as error:
            lacking.setdefault(arm.build, []).append(error.message)
    messages = [
        f"llama.cpp {build} in {builds[build].root}: {'; '.join(dict.fromkeys(reasons))}"
        for build, reasons in lacking.items()
        if reasons
    ]
    if messages:
        raise GgufspecError(" | ".join(messages), "leave the option out, or compare builds that both have it")


def check_drafters(models: ChosenModels, install: Install, engine: str) -> None:
    """Make sure that every drafter fits every target, as the engine's program judges it.

    Raises:
        DrafterRefusedError: one does not.
    """
    rule = judging.rule_for(engines.ENGINES[engine], install.build_number)
    for target, drafter, way in product(models.targets, models.drafters, models.ways):
        if way.method not in usable_methods(models.heads.get(drafter)):
            continue
        verdict = judging.check_pair(
            models.cards[target],
            models.cards[drafter],
            rule,
            build=install.build_number,
            method=way.method,
        )
        if verdict.outcome is judging.CompatOutcome.REFUSED:
            raise judging.refusal(verdict)
