"""``ggufspec pairs``: the catalogue, and whether the Hub still has what it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ggufspec.cli import _completing

if TYPE_CHECKING:
    from ggufspec.catalog import Entry
    from ggufspec.domain import ModelFile


@click.command()
@click.argument("name", required=False, shell_complete=_completing.pairs)
@click.option("--verify", is_flag=True, help="Ask the Hub for every file.")
@click.option("--token", help="Access token, instead of the usual login.")
def command(*, name: str | None, verify: bool, token: str | None) -> None:
    """List the pairs that are known by name, or all that is known about one.

    Pairs of your own go into pairs.toml of your configuration folder, in the form of models/pairs.toml.

    \b
    ggufspec pairs
    ggufspec pairs llama-3-70b --verify
    """
    from ggufspec import catalog

    entries = catalog.entries()
    if name is not None:
        catalog.find(name)
        entries = {name: entries[name]}
    if verify:
        _verify(entries, token)
    elif name is not None:
        click.echo(_details(entries[name]), nl=False)
    else:
        click.echo(_table(entries), nl=False)
        click.echo(f"your own: {catalog.user_file()}", err=True)


def _table(entries: Mapping[str, Entry]) -> str:
    from ggufspec.cli._hub import table

    rows = [
        [
            name + ("" if entry.verified else " (unverified)"),
            entry.pair.target.filename,
            entry.method if entry.pair.draft is None else entry.pair.draft.filename,
            entry.licence,
        ]
        for name, entry in entries.items()
    ]
    return table(["pair", "target", "drafter", "licence"], rows)


def _details(entry: Entry) -> str:
    lines = {
        "pair": entry.pair.name,
        "target": _where(entry.pair.target),
        "drafter": entry.method if entry.pair.draft is None else _where(entry.pair.draft),
        "licence": entry.licence,
        "source": entry.source,
        "verified": entry.evidence or "by nobody; ask the Hub with --verify",
        "note": entry.note,
        "listed in": entry.catalogue,
    }
    return "".join(f"{key:<10} {value}\n" for key, value in lines.items() if value is not None)


def _where(model: ModelFile) -> str:
    return str(model.path) if model.repo is None else f"{model.repo}/{model.filename}"


def _verify(entries: Mapping[str, Entry], token: str | None) -> None:
    """Ask for each pair; a pair that is gone is a line, and in the end an error."""
    from ggufspec import hub
    from ggufspec.errors import CatalogError, GgufspecError
    from ggufspec.units import format_bytes

    access = hub.Access(token=token)
    failed = 0
    for name, entry in entries.items():
        try:
            found = hub.survey_pair(entry.pair, access).pair
        except GgufspecError as error:
            failed += 1
            click.echo(f"{name}: {error.message}")
            continue
        both = ((entry.pair.target, found.target), (entry.pair.draft, found.draft))
        size = sum(there.size_bytes or 0 for _, there in both if there)
        changed = [there.filename for listed, there in both if listed and there and _changed(listed, there)]
        said = f"changed since it was listed: {', '.join(changed)}" if changed else "ok"
        click.echo(f"{name}: {said}, {format_bytes(size)}")
    if failed:
        raise CatalogError(f"{failed} of {len(entries)} pairs are not to be had", "fix the catalogue")


def _changed(listed: ModelFile, there: ModelFile) -> bool:
    return listed.sha256 is not None and listed.sha256 != there.sha256
