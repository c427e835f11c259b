"""``ggufspec suggest``: drafters for a target, checked and ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Count
from ggufspec.errors import GgufspecError, RemoteFileNotFoundError

if TYPE_CHECKING:
    from ggufspec.domain import ModelFile
    from ggufspec.modelfiles import gguf, hub
    from ggufspec.modelfiles.compat import judging
    from ggufspec.modelfiles.hub import Candidate


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completions.models)
@click.option(
    "--most",
    type=Count(1),
    default=6,
    show_default=True,
    help="How many repositories to look into.",
)
@click.option("--offline", is_flag=True, help="Look through the local cache only.")
@click.option("--token", help="Access token, instead of the usual login.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="The form."
)
def command(*, target: str, most: int, offline: bool, token: str | None, output: str) -> None:
    """Find drafters for TARGET: the same family, smaller, and accepted by llama.cpp.

    TARGET is user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, half a pair or a local path. Only
    headers are read; what llama.cpp would refuse comes last and says why.

    \b
    ggufspec suggest Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec suggest llama-3-70b:target --offline -o json
    """
    from ggufspec.cli.entry.output import following
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import catalog, hub
    from ggufspec.modelfiles.hub import search

    access = hub.Access(token=token, offline=offline)
    reference = hub.parse(target, catalog.load(), endpoint=access.endpoint)
    model = hub.locate(reference, access)
    card = hub.read_card(model, access)
    candidates = (
        search.in_cache(model, access)
        if access.is_offline
        else search.on_hub(model, card.architecture, access, most=most)
    )
    rule = hub_access.rule_in_use()
    found = []
    for candidate in following(candidates, lambda each: each.repo):
        try:
            drafter = _judged(candidate, card, rule, access)
        except GgufspecError as error:  # one broken repository must not end the search
            echo(f"{candidate.repo}: {error.message}", err=True)
        else:
            found += [drafter] if drafter else []
    if not found:
        raise RemoteFileNotFoundError(
            f"no smaller model of the family {search.family(model.repo or model.filename)!r} was found",
            "name a drafter yourself: ggufspec fetch --target … --draft-model …",
        )
    found.sort(key=lambda each: (each.refused, -each.promise))
    if output == "json":
        echo_json([each.facts() for each in found])
    else:
        heads = ["drafter", "size", "ratio", "downloads", "llama.cpp"]
        echo(hub_access.table(heads, [each.cells() for each in found]), nl=False)
    for each in [each for each in found if not each.refused][:3]:
        echo(
            f"ggufspec fetch --target {reference.text} --draft-model {each.name} && ggufspec bench", err=True
        )


@dataclass(frozen=True, kw_only=True)
class _Drafter:
    """A model that may draft: what llama.cpp says to it, and how promising it is (the higher the better)."""

    file: ModelFile
    downloads: int | None
    ratio: float  # of its bytes to the target's
    verdict: judging.Verdict
    refused: bool
    promise: float

    @property
    def name(self) -> str:
        return f"{self.file.repo}/{self.file.filename}"

    def cells(self) -> list[str]:
        from ggufspec.units import format_bytes

        said = [str(self.verdict.outcome), *self.verdict.reasons[:1]]
        return [
            self.name,
            format_bytes(self.file.size_bytes or 0),
            f"1/{1 / self.ratio:.0f}",
            "" if self.downloads is None else f"{self.downloads:,}",
            ": ".join(said),
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "drafter": self.name,
            "size_bytes": self.file.size_bytes,
            "ratio": self.ratio,
            "downloads": self.downloads,
            "outcome": self.verdict.outcome.value,
            "reasons": list(self.verdict.reasons),
            "helps": list(self.verdict.helps),
        }


def _judged(
    candidate: Candidate, target: gguf.ModelCard, rule: judging.Rule, access: hub.Access
) -> _Drafter | None:
    """Return a candidate's best file and what llama.cpp says to it; None where it has no file that suits."""
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.compat import judging
    from ggufspec.modelfiles.hub import search

    file = search.draft_file(candidate, target.size_bytes, access)
    if file is None:
        return None
    verdict = judging.check(target, hub.read_card(file, access), rule)
    ratio = (file.size_bytes or 0) / target.size_bytes
    return _Drafter(
        file=file,
        downloads=candidate.downloads,
        ratio=ratio,
        verdict=verdict,
        refused=verdict.outcome is judging.Outcome.REFUSED,
        promise=search.score(ratio, candidate.downloads),
    )
