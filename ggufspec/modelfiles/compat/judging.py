"""Can this drafter draft for this target? llama.cpp's own rules for each build, applied to two headers.

One row of `RULES` is valid for some programs and a range of builds. The rules were read in
examples/speculative/speculative.cpp (the tree program) and common/speculative.cpp (the simple program and the
server) of b2697, b5904, b8643 and of the summer of 2026; those of the builds between from their history.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ggufspec.domain import Method, Program
from ggufspec.errors import DrafterRefusedError
from ggufspec.llama.command import FIRST_BUILDS
from ggufspec.llama.install import Install
from ggufspec.modelfiles.compat.heads import find_faults, read_head
from ggufspec.modelfiles.compat.vocabularies import (
    TokenDifference,
    describe_difference,
    differences,
    effective,
)
from ggufspec.modelfiles.gguf import ModelCard

_FAMILY = "use a smaller model of the target's family as drafter"
_EDIT = "if both are of one family, correct the wrong header: gguf-set-metadata FILE {key} {value}"
_OTHER_HEAD = "use a head that was made for this target: `ggufspec suggest` looks for drafters"
_OVERRIDE = "if both are of one family, llama.cpp's --override-kv {key}=bool:{value} sets it for both"


class CompatOutcome(StrEnum):
    """What llama.cpp does with a pair."""

    ACCEPTED = "accepted"
    TRANSLATED = "accepted with translation"  # drafts are passed as text between the vocabularies
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
    """How the builds from ``first`` to ``last`` decide; ``last`` is None for current builds."""

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
        build: llama.cpp's build number, or None where it is not known: then the current rule.

    Raises:
        ValueError: the program never drafts, or not yet in this build.
    """
    number = sys.maxsize if build is None else build
    for rule in RULES:
        if program in rule.programs and rule.first <= number <= (rule.last or sys.maxsize):
            return replace(rule, recurrent=number not in _NO_RECURRENT.get(program, ()))
    raise ValueError(f"{program} of build {build} does not draft")


def rule_of(install: Install, program: Program) -> Rule:
    """Return how a program of an install decides.

    Raises:
        NoInstallError: the install lacks the program.
        ValueError: the program does not draft in this build.
    """
    install.executable(program)
    return rule_for(program, install.build_number)


@dataclass(frozen=True, kw_only=True)
class CompatVerdict:
    """What llama.cpp will do with a pair, and every reason why; it names only the first itself."""

    outcome: CompatOutcome
    rule: Rule
    reasons: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    n_differences: int = 0  # tokens whose texts differ
    differences: tuple[TokenDifference, ...] = ()  # the first few of them
    of_head: bool = False  # of which llama.cpp checks less: one of another target may load


def check_pair(
    target: ModelCard, draft: ModelCard, rule: Rule, *, build: int | None = None, method: Method | None = None
) -> CompatVerdict:
    """Decide whether a drafter may draft for a target.

    Args:
        target: the model whose text is wanted.
        draft: the model that drafts, or a head.
        rule: how the build in use decides, from `rule_for`.
        build: its build number, if known; heads need a recent one.
        method: how the drafter is used; by default as a head if it is nothing else.
    """
    head = read_head(draft)
    if method is None and head is not None:
        method = Method.DRAFT_MODEL if head.in_target else head.method
    if method is not None and method.is_head:
        return _check_head(target, draft, rule, method, build)
    mismatches = [*_mismatches(target, draft, rule)]
    n_differences, first = differences(target.vocabulary, draft.vocabulary)
    if first:
        mismatches.append((describe_difference(n_differences, first[0], "drafter"), _FAMILY))
    outcome = rule.mismatch if mismatches else CompatOutcome.ACCEPTED
    fatal = [
        (f"the {role} has no vocabulary", "get a GGUF with a tokenizer")
        for role, card in (("target", target), ("drafter", draft))
        if not card.vocabulary.n_tokens
    ]
    if not rule.recurrent and (target.is_recurrent or draft.is_recurrent):
        reason = "recurrent layers cannot roll back rejected draft tokens"
        fatal.append((reason, "use llama.cpp b8889 or later, which keeps checkpoints"))
    if fatal:
        outcome = CompatOutcome.REFUSED
    helps = dict.fromkeys(advice for _, advice in fatal + mismatches)
    return CompatVerdict(
        outcome=outcome,
        rule=rule,
        reasons=tuple(reason for reason, _ in fatal + mismatches),
        helps=(_FAMILY,) if _FAMILY in helps else tuple(helps),
        n_differences=n_differences,
        differences=first,
    )


def is_head(card: ModelCard) -> bool:
    """Whether a file holds a head and nothing that could draft alone."""
    head = read_head(card)
    return head is not None and not head.in_target


def _check_head(
    target: ModelCard, draft: ModelCard, rule: Rule, method: Method, build: int | None
) -> CompatVerdict:
    faults = [(reason, _OTHER_HEAD) for reason in find_faults(target, draft)]
    first = FIRST_BUILDS[method]
    if Program.TREE in rule.programs:
        reason = f"{Program.TREE.value} drafts only with a draft model, not by {method.value}"
        faults.append((reason, "use llama-server, or llama-speculative-simple"))
    elif build is not None and build < first:
        faults.append((f"build {build} cannot draft by {method.value}", f"use llama.cpp b{first} or newer"))
    return CompatVerdict(
        outcome=CompatOutcome.REFUSED if faults else CompatOutcome.ACCEPTED,
        rule=rule,
        reasons=tuple(reason for reason, _ in faults),
        helps=tuple(dict.fromkeys(advice for _, advice in faults)),
        of_head=True,
    )


def refusal(verdict: CompatVerdict) -> DrafterRefusedError:
    """Return the error that says why a pair was refused."""
    refused = (
        "this head cannot draft for this target"
        if verdict.of_head
        else "llama.cpp refuses this drafter for this target"
    )
    return DrafterRefusedError(f"{refused}: {verdict.reasons[0]}", verdict.helps[0])


def _mismatches(target: ModelCard, draft: ModelCard, rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield how two vocabularies differ, but for their texts, each with what helps."""
    ours, theirs = effective(target.vocabulary), effective(draft.vocabulary)
    types = ours.type, theirs.type
    if len({*types} if rule.types is TypeCheck.KIND else {name == "none" for name in types}) > 1:
        yield f"the target's vocabulary is of type {ours.type}, the drafter's {theirs.type}", _FAMILY
    compared = (target.vocabulary, draft.vocabulary) if rule.unset_differs else (ours, theirs)
    for name in ("bos", "eos"):
        added = [getattr(vocabulary, f"add_{name}") for vocabulary in compared]
        if added[0] != added[1]:
            key = f"tokenizer.ggml.add_{name}_token"
            advice = _OVERRIDE if None in added else _EDIT
            yield _disagreement(key, *added), advice.format(key=key, value=str(bool(added[0])).lower())
        ids = [getattr(vocabulary, f"{name}_id") for vocabulary in (ours, theirs)]
        always = rule.ids is IdCheck.BOTH or (rule.ids is IdCheck.BOS_IF_ADDED and name == "eos")
        if ids[0] != ids[1] and (always or added[0]):
            key = f"tokenizer.ggml.{name}_token_id"
            yield _disagreement(key, *ids), _EDIT.format(key=key, value=ids[0])
    sizes = target.vocabulary.n_tokens, draft.vocabulary.n_tokens
    if abs(sizes[0] - sizes[1]) > rule.max_size_difference:
        allowed = f"a difference of {rule.max_size_difference} is allowed"
        yield f"the target has {sizes[0]} tokens and the drafter {sizes[1]}; {allowed}", _FAMILY


def _disagreement(key: str, target: bool | int | None, draft: bool | int | None) -> str:
    def state(value: bool | int | None) -> str:
        return "not set" if value is None else str(value).lower()

    return f"{key} is {state(target)} in the target and {state(draft)} in the drafter"
