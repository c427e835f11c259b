"""May this drafter draft for this target? llama.cpp's own verdict, from two headers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ggufspec.errors import DrafterRefusedError
from ggufspec.modelfiles.compat.rules import RULES, CompatOutcome, IdCheck, Rule, TypeCheck, rule_for, rule_of
from ggufspec.modelfiles.compat.vocabularies import TokenDifference, differences, effective
from ggufspec.modelfiles.gguf import ModelCard

__all__ = [
    "RULES",
    "CompatOutcome",
    "CompatVerdict",
    "Rule",
    "TokenDifference",
    "check_pair",
    "refusal",
    "rule_for",
    "rule_of",
]

_FAMILY = "take a smaller model of the target's own family as drafter"
_EDIT = "if the two are of one family, correct the wrong header: gguf-set-metadata FILE {key} {value}"
_OVERRIDE = "if the two are of one family, llama.cpp's --override-kv {key}=bool:{value} sets it for both"


@dataclass(frozen=True, kw_only=True)
class CompatVerdict:
    """What llama.cpp will do with a pair, and every reason why; it names only the first itself."""

    outcome: CompatOutcome
    rule: Rule
    reasons: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    n_differences: int = 0  # tokens whose texts differ
    differences: tuple[TokenDifference, ...] = ()  # the first few of them


@dataclass(frozen=True, kw_only=True)
class _Mismatch:
    reason: str
    help: str


def check_pair(target: ModelCard, draft: ModelCard, rule: Rule) -> CompatVerdict:
    """Decide whether a drafter may draft for a target.

    Args:
        target: the model whose text is wanted.
        draft: the model that drafts.
        rule: how the build in use decides, from `rule_for`.
    """
    mismatches = [*_special(target, draft, rule), *_sizes(target, draft, rule)]
    n_differences, first = differences(target.vocabulary, draft.vocabulary)
    if first:
        differ = (
            "1 token has another text" if n_differences == 1 else f"{n_differences} tokens have other texts"
        )
        mismatches.append(
            _Mismatch(
                reason=f"{differ}, first token {first[0].id}: "
                f"{first[0].target!r} in the target, {first[0].draft!r} in the drafter",
                help=_FAMILY,
            )
        )
    outcome = rule.mismatch if mismatches else CompatOutcome.ACCEPTED
    fatal = [*_absent(target, draft), *_recurrent(target, draft, rule)]
    if fatal:
        outcome = CompatOutcome.REFUSED
    helps = dict.fromkeys(mismatch.help for mismatch in fatal + mismatches)
    return CompatVerdict(
        outcome=outcome,
        rule=rule,
        reasons=tuple(mismatch.reason for mismatch in fatal + mismatches),
        helps=(_FAMILY,) if _FAMILY in helps else tuple(helps),
        n_differences=n_differences,
        differences=first,
    )


def refusal(verdict: CompatVerdict) -> DrafterRefusedError:
    """Return the error that says why a pair was refused."""
    return DrafterRefusedError(
        f"llama.cpp refuses this drafter for this target: {verdict.reasons[0]}", verdict.helps[0]
    )


def _absent(target: ModelCard, draft: ModelCard) -> Iterator[_Mismatch]:
    for role, card in (("target", target), ("drafter", draft)):
        if not card.vocabulary.n_tokens:
            yield _Mismatch(reason=f"the {role} has no vocabulary", help="get a GGUF with a tokenizer")


def _recurrent(target: ModelCard, draft: ModelCard, rule: Rule) -> Iterator[_Mismatch]:
    if not rule.recurrent and (target.is_recurrent or draft.is_recurrent):
        yield _Mismatch(
            reason="recurrent layers cannot take back tokens that were drafted in vain",
            help="use a llama.cpp of build 8889 or later, which keeps checkpoints",
        )


def _sizes(target: ModelCard, draft: ModelCard, rule: Rule) -> Iterator[_Mismatch]:
    ours, theirs = target.vocabulary.n_tokens, draft.vocabulary.n_tokens
    if abs(ours - theirs) > rule.max_size_difference:
        yield _Mismatch(
            reason=f"the target has {ours} tokens and the drafter {theirs}; "
            f"{rule.max_size_difference} more or fewer are allowed",
            help=_FAMILY,
        )


def _special(target: ModelCard, draft: ModelCard, rule: Rule) -> Iterator[_Mismatch]:
    ours, theirs = effective(target.vocabulary), effective(draft.vocabulary)
    if _differ(ours.type, theirs.type, rule.types):
        yield _Mismatch(
            reason=f"the target's vocabulary is of type {ours.type}, the drafter's {theirs.type}",
            help=_FAMILY,
        )
    ids = {"bos": (ours.bos_id, theirs.bos_id), "eos": (ours.eos_id, theirs.eos_id)}
    adds: dict[str, tuple[bool | None, bool | None]] = {
        "bos": (ours.add_bos, theirs.add_bos),
        "eos": (ours.add_eos, theirs.add_eos),
    }
    if rule.unset_differs:
        adds = {
            "bos": (target.vocabulary.add_bos, draft.vocabulary.add_bos),
            "eos": (target.vocabulary.add_eos, draft.vocabulary.add_eos),
        }
    for name in ("bos", "eos"):
        added, stated = adds[name], ids[name]
        if added[0] != added[1]:
            key = f"tokenizer.ggml.add_{name}_token"
            advice = _OVERRIDE if None in added else _EDIT
            yield _Mismatch(
                reason=_disagreement(key, *added),
                help=advice.format(key=key, value=str(bool(added[0])).lower()),
            )
        if stated[0] != stated[1] and _id_counts(name, added[0], rule.ids):
            key = f"tokenizer.ggml.{name}_token_id"
            yield _Mismatch(reason=_disagreement(key, *stated), help=_EDIT.format(key=key, value=stated[0]))


def _differ(ours: str, theirs: str, types: TypeCheck) -> bool:
    if types is TypeCheck.KIND:
        return ours != theirs
    return (ours == "none") != (theirs == "none")


def _id_counts(name: str, added: bool | None, ids: IdCheck) -> bool:
    match ids:
        case IdCheck.BOTH:
            return True
        case IdCheck.BOS_IF_ADDED:
            return name == "eos" or bool(added)
        case IdCheck.IF_ADDED:
            return bool(added)


def _disagreement(key: str, target: bool | int | None, draft: bool | int | None) -> str:
    def state(value: bool | int | None) -> str:
        return "not set" if value is None else str(value).lower()

    return f"{key} is {state(target)} in the target and {state(draft)} in the drafter"
