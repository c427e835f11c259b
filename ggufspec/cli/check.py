"""``ggufspec check``: whether llama.cpp accepts a drafter for a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ggufspec.choices import Program
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.options import CheckOptions, only

if TYPE_CHECKING:
    from ggufspec.modelfiles.compat import CompatVerdict
    from ggufspec.modelfiles.gguf import ModelCard

_PROGRAMS = [program.value for program in (Program.TREE, Program.SIMPLE, Program.SERVER)]


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
    from ggufspec.modelfiles import api, hub
    from ggufspec.modelfiles.compat import judging

    try:
        checked = api.check_models(
            *_name_models(asked),
            hub.Access.of(asked),
            llama=only(asked.llama),
            build=asked.build,
            program=asked.program,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    verdict, chosen = checked.verdict, checked.program
    cards = {"target": checked.target, "drafter": checked.drafter}
    if asked.output == "json":
        echo_json(_format_json(verdict, chosen, cards))
    else:
        echo(_format_text(verdict, chosen, cards))
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)


def _name_models(asked: CheckOptions) -> tuple[str | None, str | None, str | None]:
    """Return a pair's name, a target and a drafter, from arguments or from options.

    Raises:
        UsageError: both were given.
    """
    from ggufspec.modelfiles import catalog, hub

    first, second = asked.model, asked.drafter
    if first is None:
        return asked.pair, only(asked.target), only(asked.draft_model)
    if asked.pair or asked.target or asked.draft_model:
        raise click.UsageError("name the models as arguments or with options, not both")
    if second is not None:
        return None, first, second
    is_pair = first in catalog.load_catalogue() or not hub.names_model(first)
    return (first, None, None) if is_pair else (None, first, None)


def _describe_rule(verdict: CompatVerdict, program: Program) -> str:
    first, last = verdict.rule.first, verdict.rule.last
    return f"{program.value} of builds {first} {'and newer' if last is None else f'to {last}'}"


def _format_json(
    verdict: CompatVerdict, program: Program, cards: Mapping[str, ModelCard]
) -> dict[str, object]:
    return {
        "outcome": verdict.outcome.value,
        "decided_as": _describe_rule(verdict, program),
        **{
            role: {
                "architecture": card.architecture,
                "quant": card.quant,
                "tokenizer": card.tokenizer_model,
                "tokens": card.vocabulary.n_tokens,
            }
            for role, card in cards.items()
        },
        "reasons": list(verdict.reasons),
        "helps": list(verdict.helps),
        "n_differences": verdict.n_differences,
        "differences": [
            {"id": token.id, "target": token.target, "drafter": token.draft} for token in verdict.differences
        ],
    }


def _format_text(verdict: CompatVerdict, program: Program, cards: Mapping[str, ModelCard]) -> str:
    lines = [f"{verdict.outcome.value} ({_describe_rule(verdict, program)})"]
    for role, card in cards.items():
        model = f"{card.architecture} {card.described_quant}".rstrip()
        lines.append(f"{role:<8} {model}, {card.vocabulary.n_tokens} tokens ({card.tokenizer_model})")
    lines += [f"because  {reason}" for reason in verdict.reasons]
    lines += [
        f"         token {token.id}: {token.target!r} and {token.draft!r}" for token in verdict.differences
    ]
    lines += [f"help     {advice}" for advice in verdict.helps]
    return "\n".join(lines)
