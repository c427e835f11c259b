"""``ggufspec check``: will llama.cpp let this drafter draft for this target?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Count

if TYPE_CHECKING:
    from ggufspec.modelfiles.compat import Verdict
    from ggufspec.modelfiles.gguf import ModelCard

_PROGRAMS = ("speculative", "speculative-simple", "server")


@click.command()
@click.argument("target", shell_complete=completions.models_and_pairs)
@click.argument("drafter", required=False, shell_complete=completions.models)
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of an installed llama.cpp.",
)
@click.option("--build", type=Count(1), help="Decide as this build of llama.cpp does, such as 2697.")
@click.option(
    "--program", type=click.Choice(_PROGRAMS), default=_PROGRAMS[0], show_default=True, help="Who drafts."
)
@click.option("--offline", is_flag=True, help="Use what is cached, ask nobody.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="The form."
)
def command(
    *,
    target: str,
    drafter: str | None,
    llama: Path | None,
    build: int | None,
    program: str,
    offline: bool,
    output: str,
) -> None:
    """Say whether llama.cpp accepts DRAFTER for TARGET, and if not, why and what would help.

    Both are local paths, user/repo:QUANT or halves of a pair (demo:target); TARGET alone may name a pair.
    Only headers are read. The llama.cpp in use decides; without one, today's. Exit code 7 means refused.

    \b
    ggufspec check llama-3-70b
    ggufspec check big.gguf small.gguf --build 2697
    """
    from ggufspec.cli.options import models
    from ggufspec.domain import Program
    from ggufspec.modelfiles import catalog, hub
    from ggufspec.modelfiles.compat import judging

    access = hub.Access(offline=offline)
    named = drafter is None
    pair = models.choose(target if named else None, None if named else target, drafter, access)
    if pair.draft is None:
        method = catalog.drafting_method(pair)
        why = f": it drafts by {method}, from the text so far" if method else ""
        raise click.UsageError(f"the pair {target!r} has no drafter{why}")
    target_card, draft_card = models.cards(pair, access)
    assert draft_card is not None
    who = Program(program)
    verdict = judging.check(target_card, draft_card, _rule(who, llama, build))
    report = _facts(verdict, who, target_card, draft_card)
    if output == "json":
        echo_json(report)
    else:
        echo(_text(report))
    if verdict.outcome is judging.Outcome.REFUSED:
        raise judging.refusal(verdict)


def _rule(program: Any, llama: Path | None, build: int | None) -> Any:
    from ggufspec.errors import NoInstallError
    from ggufspec.llama.install import installs
    from ggufspec.modelfiles.compat import judging

    try:
        if build is not None:
            return judging.rule_for(program, build)
        return judging.rule_of(installs.find(llama), program)
    except NoInstallError:
        if llama is not None:
            raise
        return judging.rule_for(program)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _facts(verdict: Verdict, program: Any, target: ModelCard, draft: ModelCard) -> dict[str, Any]:
    last = verdict.rule.last
    return {
        "outcome": verdict.outcome.value,
        "decided_as": f"{program.value} of builds {verdict.rule.first} to {last or 'today'}",
        "target": _vocabulary(target),
        "drafter": _vocabulary(draft),
        "reasons": list(verdict.reasons),
        "helps": list(verdict.helps),
        "n_differences": verdict.n_differences,
        "differences": [
            {"id": each.id, "target": each.target, "drafter": each.draft} for each in verdict.differences
        ],
    }


def _vocabulary(card: ModelCard) -> dict[str, Any]:
    return {
        "architecture": card.architecture,
        "quant": card.quant,
        "tokenizer": card.tokenizer_model,
        "tokens": card.vocabulary.n_tokens,
    }


def _text(facts: dict[str, Any]) -> str:
    lines = [f"{facts['outcome']} ({facts['decided_as']})"]
    for which in ("target", "drafter"):
        card = facts[which]
        model = f"{card['architecture']} {card['quant'] or ''}".rstrip()
        lines.append(f"{which:<8} {model}, {card['tokens']} tokens ({card['tokenizer']})")
    lines += [f"because  {reason}" for reason in facts["reasons"]]
    lines += [
        f"         token {each['id']}: {each['target']!r} and {each['drafter']!r}"
        for each in facts["differences"]
    ]
    lines += [f"help     {advice}" for advice in facts["helps"]]
    return "\n".join(lines)
