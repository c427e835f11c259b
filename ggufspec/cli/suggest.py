"""``ggufspec suggest``: find, check and rank drafters for a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Count, text_or_json
from ggufspec.errors import GgufspecError, RemoteFileNotFoundError

if TYPE_CHECKING:
    from ggufspec.domain import ModelFile
    from ggufspec.modelfiles import gguf, hub
    from ggufspec.modelfiles.compat import judging
    from ggufspec.modelfiles.hub import DrafterCandidate


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completions.models)
@click.option(
    "--most",
    type=Count(1),
    default=6,
    show_default=True,
    help="Maximum number of repositories to check.",
)
@click.option("--offline", is_flag=True, help="Search only the local cache.")
@click.option("--token", help="Access token for the Hub. [default: the stored login]")
@text_or_json
def command(*, target: str, most: int, offline: bool, token: str | None, output: str) -> None:
    """Find drafters for TARGET: smaller models of the same family that llama.cpp accepts.

    TARGET is user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, half of a pair or a local path. Only
    headers are read. Models that llama.cpp refuses are listed last, with the reason.

    \b
    ggufspec suggest Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec suggest llama-3-70b:target --offline -o json
    """
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import catalog, hub
    from ggufspec.modelfiles.hub import search

    access = hub.Access(token=token, offline=offline)
    reference = hub.parse_reference(target, catalog.load_catalogue(), endpoint=access.endpoint)
    model = hub.locate(reference, access)
    card = hub.read_card(model, access)
    candidates = (
        search.in_cache(model, access)
        if access.is_offline
        else search.on_hub(model, card.architecture, access, most=most)
    )
    rule = hub_access.find_rule()
    drafters: list[_Drafter] = []
    for candidate in iterate_with_progress(candidates, lambda candidate: candidate.repo):
        try:
            drafter = _check_candidate(candidate, card, rule, access)
        except GgufspecError as error:  # one broken repository must not end the search
            echo(f"{candidate.repo}: {error.message}", err=True)
        else:
            drafters += [drafter] if drafter else []
    if not drafters:
        raise RemoteFileNotFoundError(
            f"no smaller model of the family {search.family(model.repo or model.filename)!r} was found",
            "name a drafter: ggufspec fetch --target … --draft-model …",
        )
    drafters.sort(key=lambda drafter: (drafter.refused, -drafter.score))
    if output == "json":
        echo_json([drafter.format_json() for drafter in drafters])
    else:
        headings = ["drafter", "size", "ratio", "downloads", "llama.cpp"]
        echo_table(headings, [drafter.format_cells() for drafter in drafters])
    for drafter in [drafter for drafter in drafters if not drafter.refused][:3]:
        echo(
            f"ggufspec fetch --target {reference.text} --draft-model {drafter.name} && ggufspec bench",
            err=True,
        )


@dataclass(frozen=True, kw_only=True)
class _Drafter:
    """A possible drafter: llama.cpp's verdict, and a score (higher is better)."""

    file: ModelFile
    downloads: int | None
    ratio: float  # of its bytes to the target's
    verdict: judging.CompatVerdict
    refused: bool
    score: float

    @property
    def name(self) -> str:
        return f"{self.file.repo}/{self.file.filename}"

    def format_cells(self) -> list[str]:
        from ggufspec.units import format_bytes

        verdict = [str(self.verdict.outcome), *self.verdict.reasons[:1]]
        return [
            self.name,
            format_bytes(self.file.size_bytes or 0),
            f"1/{1 / self.ratio:.0f}",
            "" if self.downloads is None else f"{self.downloads:,}",
            ": ".join(verdict),
        ]

    def format_json(self) -> dict[str, object]:
        return {
            "drafter": self.name,
            "size_bytes": self.file.size_bytes,
            "ratio": self.ratio,
            "downloads": self.downloads,
            "outcome": self.verdict.outcome.value,
            "reasons": list(self.verdict.reasons),
            "helps": list(self.verdict.helps),
        }


def _check_candidate(
    candidate: DrafterCandidate, target: gguf.ModelCard, rule: judging.Rule, access: hub.Access
) -> _Drafter | None:
    """Return a candidate's best file with llama.cpp's verdict; None if it has no suitable file."""
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.compat import judging
    from ggufspec.modelfiles.hub import search

    file = search.draft_file(candidate, target.size_bytes, access)
    if file is None:
        return None
    verdict = judging.check_pair(target, hub.read_card(file, access), rule)
    ratio = (file.size_bytes or 0) / target.size_bytes
    return _Drafter(
        file=file,
        downloads=candidate.downloads,
        ratio=ratio,
        verdict=verdict,
        refused=verdict.outcome is judging.CompatOutcome.REFUSED,
        score=search.score(ratio, candidate.downloads),
    )
