"""``ggufspec check``: whether llama.cpp accepts a drafter for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.options import CheckOptions

if TYPE_CHECKING:
    from ggufspec.modelfiles.api import CheckedPair


@command_of(CheckOptions)
def command(asked: CheckOptions) -> None:
    """Check whether llama.cpp accepts DRAFTER for TARGET; if not, print the reason and what would help.

    Both are files, user/repo:QUANT or halves of a pair (demo:target), also as -m and -md. DRAFTER is a draft
    model or a head (MTP, EAGLE-3, DFlash, DSpark). TARGET alone is a pair, or a model whose layers for MTP
    draft; without any, it is the pair fetched last. Only headers are read. The rule is that of the installed
    llama.cpp, or of the newest if none is installed. The exit code 7 means refused.

    \b
    ggufspec check llama-3-70b
    ggufspec check big.gguf small.gguf --build 2697
    """
    with usage_errors():
        checked = api.check(asked)
    if asked.output == "json":
        echo_json(_format_json(checked))
    else:
        echo(_format_text(checked))
    checked.raise_if_refused()


def _describe_rule(checked: CheckedPair) -> str:
    first, last = checked.verdict.rule.first, checked.verdict.rule.last
    return f"{checked.program.value} of builds {first} {'and newer' if last is None else f'to {last}'}"


def _format_json(checked: CheckedPair) -> dict[str, object]:
    verdict = checked.verdict
    return {
        "outcome": verdict.outcome.value,
        "decided_as": _describe_rule(checked),
        **{
            role: {
                "architecture": card.architecture,
                "quant": card.quant,
                "tokenizer": card.tokenizer_model,
                "tokens": card.vocabulary.n_tokens,
            }
            for role, card in (("target", checked.target), ("drafter", checked.drafter))
        },
        "reasons": list(verdict.reasons),
        "helps": list(verdict.helps),
        "n_differences": verdict.n_differences,
        "differences": [
            {"id": token.id, "target": token.target, "drafter": token.draft} for token in verdict.differences
        ],
    }


def _format_text(checked: CheckedPair) -> str:
    verdict = checked.verdict
    lines = [f"{verdict.outcome.value} ({_describe_rule(checked)})"]
    for role, card in (("target", checked.target), ("drafter", checked.drafter)):
        model = f"{card.architecture} {card.described_quant}".rstrip()
        lines.append(f"{role:<8} {model}, {card.vocabulary.n_tokens} tokens ({card.tokenizer_model})")
    lines += [f"because  {reason}" for reason in verdict.reasons]
    lines += [
        f"         token {token.id}: {token.target!r} and {token.draft!r}" for token in verdict.differences
    ]
    lines += [f"help     {advice}" for advice in verdict.helps]
    return "\n".join(lines)
