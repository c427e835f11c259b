"""Which engine measures, and whether the llama.cpps in use have the programs that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ggufspec import engines
from ggufspec.domain import Chain, Method, Program
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import check_chain, commands
from ggufspec.llama.install import Install

_LIMITS = {
    "server": "it measures memory for a process, not for a run",
    "inprocess": "it drafts only with a draft model, and serves one request after another",
}
"""Engine -> what it cannot measure, for those that are not the first choice."""


class ChosenEngine(NamedTuple):
    """A row of ENGINES, and notes on why it is not the first one."""

    name: str
    notes: tuple[str, ...] = ()


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
            raise GgufspecError(
                f"the {program.path.name} in {install.root} cannot draft", "use --engine binary"
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
