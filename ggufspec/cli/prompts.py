"""``ggufspec prompts``: what the built-in prompt suites hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ggufspec.choices import SUITES
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.options import Options, PromptsOptions

if TYPE_CHECKING:
    from ggufspec.prompts import PromptSuite

_WORDS = 8  # of a prompt that are shown


@group_of(Options)
def command(asked: Options) -> None:
    """Show what the built-in prompt suites hold. Measure with one by `--suite NAME`.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work
    """


@command_of(PromptsOptions, group=command, name="list")
def listed(asked: PromptsOptions) -> None:
    """List the suites, or the prompts of one. Lengths are in characters, without followups.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work -o json
    """
    from ggufspec import prompts

    if asked.suite is None:
        rows = [_describe_suite(prompts.suite(name)) for name in SUITES]
    else:
        rows = _describe_prompts(prompts.suite(asked.suite))
    if asked.output == "json":
        echo_json(rows)
        return
    echo_table(
        [heading.replace("_", " ") for heading in rows[0]],
        [[*map(_format_cell, row.values())] for row in rows],
    )
    if asked.suite is None:
        echo("the prompts of one: ggufspec prompts list --suite NAME", err=True)


def _describe_suite(suite: PromptSuite) -> dict[str, Any]:
    import statistics  # not for ``--help``: with it, fractions and decimal are imported

    return {
        "suite": suite.name,
        "categories": suite.categories,
        "prompts": len(suite.prompts),
        "median_characters": round(statistics.median(suite.lengths)),
        "largest_characters": max(suite.lengths),
        "conversations": suite.n_conversations,
        "licence": suite.licence,
    }


def _describe_prompts(suite: PromptSuite) -> list[dict[str, Any]]:
    return [
        {
            "prompt": prompt.id,
            "category": prompt.category,
            "characters": len(prompt.text),
            "followups": len(prompt.followups),
            "first_words": " ".join(prompt.text.split()[:_WORDS]),
        }
        for prompt in suite.prompts
    ]


def _format_cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(value) if isinstance(value, tuple) else str(value or "")
