"""``ggufspec suggest``: find, check and rank draft models and heads for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import SuggestOptions
from ggufspec.units import format_bytes

if TYPE_CHECKING:
    from ggufspec.modelfiles.api import SuggestedDrafter


@command_of(SuggestOptions)
def command(asked: SuggestOptions) -> None:
    """Find drafters for TARGET: its layers for MTP, heads, and smaller models of the same family.

    TARGET is user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, half of a pair or a local path. Only
    headers are read. Heads (MTP, EAGLE-3, DFlash, DSpark) are found beside the target, as llama.cpp's -hf
    finds them, and in repositories of their own. What llama.cpp refuses is listed last, with the reason.

    \b
    ggufspec suggest Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec suggest llama-3-70b:target --offline -o json
    """
    from ggufspec.redaction import redact

    drafters = api.suggest(asked, sink=Terminal())
    if asked.output == "json":
        echo_json([_format_json(drafter) for drafter in drafters])
    else:
        headings = ["drafter", "drafts by", "size", "ratio", "downloads", "llama.cpp"]
        echo_table(headings, [_format_cells(drafter) for drafter in drafters])
    for drafter in [drafter for drafter in drafters if not drafter.is_refused][:3]:
        echo(_format_command(redact(asked.target), drafter), err=True)


def _format_command(target: str, drafter: SuggestedDrafter) -> str:
    """Return the commands that fetch a drafter with its target and measure it."""
    fetch = f"ggufspec fetch --target {target}"
    if drafter.in_target:
        return f"{fetch} && ggufspec bench --method {drafter.method.value}"
    return f"{fetch} --draft-model {drafter.name} && ggufspec bench"


def _format_cells(drafter: SuggestedDrafter) -> list[str]:
    verdict = [str(drafter.verdict.outcome), *drafter.verdict.reasons[:1]]
    return [
        drafter.name,
        drafter.method.value,
        format_bytes(drafter.file.size_bytes or 0),
        f"1/{1 / drafter.ratio:.0f}",
        "" if drafter.downloads is None else f"{drafter.downloads:,}",
        ": ".join(verdict),
    ]


def _format_json(drafter: SuggestedDrafter) -> dict[str, object]:
    return {
        "drafter": drafter.name,
        "method": drafter.method.value,
        "size_bytes": drafter.file.size_bytes,
        "ratio": drafter.ratio,
        "downloads": drafter.downloads,
        "outcome": drafter.verdict.outcome.value,
        "reasons": list(drafter.verdict.reasons),
        "helps": list(drafter.verdict.helps),
    }
