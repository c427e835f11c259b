"""``ggufspec suggest``: drafters for a target, checked and ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggufspec.cli import _completing
from ggufspec.errors import GgufspecError, RemoteFileNotFoundError

if TYPE_CHECKING:
    from ggufspec import compat, gguf, hub
    from ggufspec.domain import ModelFile
    from ggufspec.hub.search import Candidate


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=_completing.models)
@click.option("--most", default=6, show_default=True, help="How many repositories to look into.")
@click.option("--offline", is_flag=True, help="Look through the local cache only.")
@click.option("--token", help="Access token, instead of the usual login.")
def command(*, target: str, most: int, offline: bool, token: str | None) -> None:
    """Find drafters for TARGET: the same family, smaller, and accepted by llama.cpp.

    TARGET is user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, half a pair or a local path. Only
    headers are read; what llama.cpp would refuse comes last and says why.

    \b
    ggufspec suggest Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec suggest llama-3-70b:target --offline
    """
    from ggufspec import catalog, hub
    from ggufspec.cli import _hub
    from ggufspec.hub import search

    access = hub.Access(token=token, offline=offline)
    reference = hub.parse(target, catalog.load(), endpoint=access.endpoint)
    model = hub.locate(reference, access)
    card = hub.read_card(model, access)
    candidates = (
        search.in_cache(model, access)
        if access.is_offline
        else search.on_hub(model, card.architecture, access, most=most)
    )
    rule = _hub.rule_in_use()
    rows = []
    for candidate in candidates:
        try:
            row = _row(candidate, card, rule, access)
        except GgufspecError as error:  # one broken repository must not end the search
            click.echo(f"{candidate.repo}: {error.message}", err=True)
        else:
            rows += [row] if row else []
    if not rows:
        raise RemoteFileNotFoundError(
            f"no smaller model of the family {search.family(model.repo or model.filename)!r} was found",
            "name a drafter yourself: ggufspec fetch --target … --draft-model …",
        )
    rows.sort(key=lambda row: row[0])
    click.echo(
        _hub.table(["drafter", "size", "ratio", "downloads", "llama.cpp"], [row[1] for row in rows]), nl=False
    )
    for _, (name, *_) in [row for row in rows if not row[0][0]][:3]:
        click.echo(
            f"ggufspec fetch --target {reference.text} --draft-model {name} && ggufspec bench", err=True
        )


def _row(
    candidate: Candidate, target: gguf.ModelCard, rule: compat.Rule, access: hub.Access
) -> tuple[tuple[bool, float], list[str]] | None:
    """Return a sort key (refused last, then by promise) and the cells of the table."""
    from ggufspec import compat, hub
    from ggufspec.hub import search
    from ggufspec.units import format_bytes

    file: ModelFile | None = search.draft_file(candidate, target.size_bytes, access)
    if file is None:
        return None
    verdict = compat.check(target, hub.read_card(file, access), rule)
    refused = verdict.outcome is compat.Outcome.REFUSED
    ratio = (file.size_bytes or 0) / target.size_bytes
    said = f"{verdict.outcome}: {verdict.reasons[0]}" if verdict.reasons else str(verdict.outcome)
    return (refused, -search.score(ratio, candidate.downloads)), [
        f"{file.repo}/{file.filename}",
        format_bytes(file.size_bytes or 0),
        f"1/{1 / ratio:.0f}",
        "" if candidate.downloads is None else f"{candidate.downloads:,}",
        said,
    ]
