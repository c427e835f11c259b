"""``ggufspec pairs``: the catalogue, and whether the Hub still has what it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.options import completions

if TYPE_CHECKING:
    from ggufspec.domain import ModelFile
    from ggufspec.modelfiles import catalog, hub


@click.command()
@click.argument("name", required=False, shell_complete=completions.pairs)
@click.option("--verify", is_flag=True, help="Ask the Hub for every file.")
@click.option("--token", help="Access token, instead of the usual login.")
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="The form."
)
def command(*, name: str | None, verify: bool, token: str | None, output: str) -> None:
    """List the pairs that are known by name, or all that is known about one.

    Pairs of your own go into pairs.toml of your configuration folder, in the form of models/pairs.toml.

    \b
    ggufspec pairs
    ggufspec pairs llama-3-70b --verify
    ggufspec pairs -o json
    """
    from ggufspec.modelfiles import catalog

    entries = catalog.entries()
    if name is not None:
        catalog.find(name)
        entries = {name: entries[name]}
    if verify:
        _verify(entries, token, output)
    elif output == "json":
        _print([_facts(entry) for entry in entries.values()])
    elif name is not None:
        echo(_details(entries[name]), nl=False)
    else:
        echo(_table(entries), nl=False)
        echo(f"your own: {catalog.user_file()}", err=True)


def _table(entries: Mapping[str, catalog.Entry]) -> str:
    from ggufspec.cli.steps.hub_access import table

    rows = [
        [
            name + ("" if entry.verified else " (unverified)"),
            entry.pair.target.filename,
            _drafts(entry),
            entry.licence,
        ]
        for name, entry in entries.items()
    ]
    return table(["pair", "target", "drafter", "licence"], rows)


def _details(entry: catalog.Entry) -> str:
    lines = {
        "pair": entry.pair.name,
        "target": _where(entry.pair.target),
        "drafter": None if entry.pair.draft is None else _where(entry.pair.draft),
        "method": _method(entry),
        "licence": entry.licence,
        "source": entry.source,
        "verified": entry.evidence or "by nobody; ask the Hub with --verify",
        "note": entry.note,
        "listed in": entry.catalogue,
    }
    return "".join(f"{key:<10} {value}\n" for key, value in lines.items() if value is not None)


def _drafts(entry: catalog.Entry) -> str:
    """Return the drafter's file; the method where it is another one than drafting with that."""
    from ggufspec.domain import Method

    if entry.method == Method.DRAFT_MODEL and entry.pair.draft is not None:
        return entry.pair.draft.filename
    return _method(entry)


def _method(entry: catalog.Entry) -> str:
    return entry.method + ("" if entry.supported else " (not supported yet)")


def _where(model: ModelFile) -> str:
    return str(model.path) if model.repo is None else f"{model.repo}/{model.filename}"


def _facts(entry: catalog.Entry) -> dict[str, Any]:
    return {
        "pair": entry.pair.name,
        "target": _model(entry.pair.target),
        "drafter": None if entry.pair.draft is None else _model(entry.pair.draft),
        "method": entry.method,
        "supported": entry.supported,
        "licence": entry.licence,
        "source": entry.source,
        "verified": entry.verified,
        "evidence": entry.evidence,
        "note": entry.note,
        "listed_in": str(entry.catalogue),
    }


def _model(model: ModelFile) -> dict[str, Any]:
    return {
        "repo": model.repo,
        "file": model.filename,
        "quant": model.quant,
        "revision": model.revision,
        "sha256": model.sha256,
        "path": None if model.path is None else str(model.path),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    echo_json(rows)


def _verify(entries: Mapping[str, catalog.Entry], token: str | None, output: str) -> None:
    """Ask for each pair; a pair that is gone is a line, and in the end an error."""
    from ggufspec.cli.entry.output import following
    from ggufspec.errors import CatalogError
    from ggufspec.modelfiles import hub

    access = hub.Access(token=token)
    rows = [_asked(entry, access) for entry in following([*entries.values()], _name)]
    if output == "json":
        _print(rows)
    else:
        echo("".join(f"{row['pair']}: {_said(row)}\n" for row in rows), nl=False)
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        raise CatalogError(f"{failed} of {len(entries)} pairs are not to be had", "fix the catalogue")


def _asked(entry: catalog.Entry, access: hub.Access) -> dict[str, Any]:
    """Return what the Hub says of a pair: its bytes and what changed, or why it is not to be had."""
    from ggufspec.errors import GgufspecError
    from ggufspec.modelfiles import hub

    row: dict[str, Any] = {"pair": entry.pair.name, "size_bytes": None, "changed": [], "error": None}
    try:
        found = hub.survey_pair(entry.pair, access).pair
    except GgufspecError as error:
        return row | {"error": error.message}
    both = ((entry.pair.target, found.target), (entry.pair.draft, found.draft))
    return row | {
        "size_bytes": sum(there.size_bytes or 0 for _, there in both if there),
        "changed": [there.filename for listed, there in both if listed and there and _changed(listed, there)],
    }


def _said(row: Mapping[str, Any]) -> str:
    from ggufspec.units import format_bytes

    if row["error"] is not None:
        return str(row["error"])
    changed = f"changed since it was listed: {', '.join(row['changed'])}" if row["changed"] else "ok"
    return f"{changed}, {format_bytes(row['size_bytes'])}"


def _name(entry: catalog.Entry) -> str:
    return entry.pair.name


def _changed(listed: ModelFile, there: ModelFile) -> bool:
    return listed.sha256 is not None and listed.sha256 != there.sha256
