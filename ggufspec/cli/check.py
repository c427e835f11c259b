"""``ggufspec check``: whether llama.cpp accepts a drafter for a target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.choices import Program
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Count, text_or_json

if TYPE_CHECKING:
    from ggufspec.modelfiles.compat import CompatVerdict, judging
    from ggufspec.modelfiles.gguf import ModelCard

_PROGRAMS = [program.value for program in (Program.TREE, Program.SIMPLE, Program.SERVER)]


@click.command()
@click.argument("target", shell_complete=completions.models_and_pairs)
@click.argument("drafter", required=False, shell_complete=completions.models)
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of a llama.cpp installation.",
)
@click.option("--build", type=Count(1), help="Use the rule of this build of llama.cpp, such as 2697.")
@click.option(
    "--program",
    type=click.Choice(_PROGRAMS),
    help="Program that drafts. [default: speculative; server for a head]",
)
@click.option("--offline", is_flag=True, help="Use only cached files; do not connect to the Hub.")
@text_or_json
def command(
    *,
    target: str,
    drafter: str | None,
    llama: Path | None,
    build: int | None,
    program: str | None,
    offline: bool,
    output: str,
) -> None:
    """Check whether llama.cpp accepts DRAFTER for TARGET; if not, print the reason and what would help.

    Both are local paths, user/repo:QUANT or halves of a pair (demo:target). DRAFTER is a draft model or a
    head (MTP, EAGLE-3, DFlash, DSpark). TARGET alone can be a pair. Only headers are read. The rule is that
    of the installed llama.cpp, or of the newest if none is installed. The exit code 7 means refused.

    \b
    ggufspec check llama-3-70b
    ggufspec check big.gguf small.gguf --build 2697
    """
    from ggufspec.cli.options import models
    from ggufspec.modelfiles import catalog, hub
    from ggufspec.modelfiles.compat import judging

    access = hub.Access(offline=offline)
    is_pair = drafter is None
    pair = models.choose_pair(target if is_pair else None, None if is_pair else target, drafter, access)
    way = catalog.drafting_method(pair)
    method = way.method if way is not None and way.method.is_head else None
    if pair.draft is None and method is None:
        reason = f": it drafts with {way}, from the text so far" if way else ""
        raise click.UsageError(f"the pair {target!r} has no drafter{reason}")
    target_card, draft_card = models.read_cards(pair, access)
    draft_card = draft_card or target_card  # whose layers for MTP draft
    is_head = method is not None or judging.is_head(draft_card)
    chosen = Program(program) if program else Program.SERVER if is_head else Program.TREE
    rule, number = _choose_rule(chosen, llama, build)
    verdict = judging.check_pair(target_card, draft_card, rule, build=number, method=method)
    cards = {"target": target_card, "drafter": draft_card}
    if output == "json":
        echo_json(_format_json(verdict, chosen, cards))
    else:
        echo(_format_text(verdict, chosen, cards))
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)


def _choose_rule(program: Program, llama: Path | None, build: int | None) -> tuple[judging.Rule, int | None]:
    """Return how a program decides, and the build number of its llama.cpp if that is known."""
    from ggufspec.errors import NoInstallError
    from ggufspec.llama.install import installs
    from ggufspec.modelfiles.compat import judging

    try:
        if build is not None:
            return judging.rule_for(program, build), build
        install = installs.find_install(llama)
        return judging.rule_of(install, program), install.build_number
    except NoInstallError:
        if llama is not None:
            raise
        return judging.rule_for(program), None
    except ValueError as error:
        raise click.UsageError(str(error)) from error


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
        model = f"{card.architecture} {card.quant or ''}".rstrip()
        lines.append(f"{role:<8} {model}, {card.vocabulary.n_tokens} tokens ({card.tokenizer_model})")
    lines += [f"because  {reason}" for reason in verdict.reasons]
    lines += [
        f"         token {token.id}: {token.target!r} and {token.draft!r}" for token in verdict.differences
    ]
    lines += [f"help     {advice}" for advice in verdict.helps]
    return "\n".join(lines)
