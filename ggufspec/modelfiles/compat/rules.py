"""How each build of llama.cpp decides whether a drafter may draft: one row per program and range of builds.

Read in examples/speculative/speculative.cpp (the tree program) and common/speculative.cpp (the simple program
and the server) of b2697, b5904, b8643 and of the summer of 2026; the builds between from their history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ggufspec.domain import Program
from ggufspec.llama.install import Install


class CompatOutcome(StrEnum):
    """What llama.cpp does with a pair."""

    ACCEPTED = "accepted"
    TRANSLATED = "accepted with translation"  # drafts travel as text between the vocabularies
    REFUSED = "refused"


class TypeCheck(StrEnum):
    """How vocabulary types are compared."""

    PRESENCE = "presence"  # the type is kept in a bool, so that only "none" differs from the rest
    KIND = "kind"


class IdCheck(StrEnum):
    """Which of the ids of BOS and EOS must agree. Whether they are added must agree always."""

    BOTH = "both"
    BOS_IF_ADDED = "BOS if it is added, EOS always"
    IF_ADDED = "those that are added"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How the builds from ``first`` to ``last`` decide; ``last`` is None for those of today."""

    programs: frozenset[Program]
    first: int
    last: int | None
    types: TypeCheck = TypeCheck.PRESENCE
    ids: IdCheck
    max_size_difference: int = 128
    unset_differs: bool = False  # add_bos that one file sets and the other leaves open is a difference
    mismatch: CompatOutcome = CompatOutcome.REFUSED
    recurrent: bool = True  # models whose state cannot be rolled back may take part


_TREE = frozenset({Program.TREE})
_LIBRARY = frozenset({Program.SIMPLE, Program.SERVER})
_TRANSLATED = CompatOutcome.TRANSLATED

RULES = (
    Rule(programs=_TREE, first=0, last=3180, ids=IdCheck.BOTH, max_size_difference=100, unset_differs=True),
    Rule(programs=_TREE, first=3181, last=4158, ids=IdCheck.BOTH, max_size_difference=100),
    Rule(programs=_TREE, first=4159, last=8931, ids=IdCheck.BOTH),
    Rule(programs=_TREE, first=8932, last=8981, ids=IdCheck.BOS_IF_ADDED),
    Rule(programs=_TREE, first=8982, last=None, ids=IdCheck.IF_ADDED),
    Rule(programs=_LIBRARY, first=4159, last=6044, ids=IdCheck.BOTH),
    Rule(programs=_LIBRARY, first=6045, last=8931, ids=IdCheck.BOTH, mismatch=_TRANSLATED),
    Rule(programs=_LIBRARY, first=8932, last=9108, ids=IdCheck.IF_ADDED, mismatch=_TRANSLATED),
    Rule(programs=_LIBRARY, first=9109, last=9547, ids=IdCheck.IF_ADDED),
    Rule(programs=_LIBRARY, first=9548, last=None, ids=IdCheck.IF_ADDED, types=TypeCheck.KIND),
)

_NO_RECURRENT = {Program.SERVER: range(7959, 8842), Program.SIMPLE: range(7959, 8889)}


def rule_for(program: Program, build: int | None = None) -> Rule:
    """Return how a program of a build decides.

    Args:
        program: a program that drafts.
        build: llama.cpp's build number, or None where it is not known: then today's rule.

    Raises:
        ValueError: the program never drafts, or not yet in this build.
    """
    for rule in RULES:
        if program not in rule.programs:
            continue
        if rule.last is None and (build is None or build >= rule.first):
            return rule
        if build is not None and rule.last is not None and rule.first <= build <= rule.last:
            return replace(rule, recurrent=build not in _NO_RECURRENT.get(program, ()))
    raise ValueError(f"{program} of build {build} does not draft")


def rule_of(install: Install, program: Program) -> Rule:
    """Return how a program of an install decides.

    Raises:
        NoInstallError: the install lacks the program.
        ValueError: the program does not draft in this build.
    """
    install.executable(program)
    return rule_for(program, install.build_number)
