"""``ggufspec cache``: what is stored on this machine, its size, and how to delete it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.cli.options.shared import LazyChoice, text_or_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ggufspec.doctor import storage


def _kinds() -> list[str]:
    from ggufspec.doctor import storage

    return [kind.value for kind in storage.StorageKind]


def _complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ggufspec.doctor import storage

    names = [*_kinds(), *(item.name for item in storage.list_items())]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.group(invoke_without_command=True)
@text_or_json
@click.pass_context
def command(ctx: click.Context, /, *, output: str) -> None:
    """Show the disk space of builds, sources, models and results, and free it.

    The kinds are builds, sources, cuda, models, digests, other, profiles and results. Profiles and results
    are measurements; the others can be built or downloaded again. Models are in the Hub's cache, which other
    programs share.

    \b
    ggufspec cache
    ggufspec cache list builds
    ggufspec cache prune sources builds/0.2.63-cpu-ba7f74e6
    """
    if ctx.invoked_subcommand is None:
        _print_overview(output)


@command.command("list")
@click.argument("kinds", nargs=-1, metavar="[KIND]...", type=LazyChoice("kind", _kinds))
@text_or_json
def listed(*, kinds: Sequence[str], output: str) -> None:
    """List the items of each KIND, or of all kinds, with the names that `prune` accepts.

    \b
    ggufspec cache list
    ggufspec cache list builds models -o json
    """
    from ggufspec.doctor import storage

    items = storage.list_items([storage.StorageKind(kind) for kind in kinds] or tuple(storage.StorageKind))
    if output == "json":
        rows = [
            {
                "name": item.name,
                "kind": item.kind.value,
                "size_bytes": item.size_bytes,
                "changed_at": item.changed_at.isoformat(timespec="seconds"),
                "note": item.note or None,
                "path": str(item.places[0]),
            }
            for item in items
        ]
        echo_json(rows)
        return
    _print_items(items)


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete_names)
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@click.pass_context
def prune(ctx: click.Context, /, *, names: Sequence[str], yes: bool) -> None:
    """Delete each NAME after confirmation: a complete kind, or a single item as `list` names it.

    Models must be named one by one.

    \b
    ggufspec cache prune sources
    ggufspec cache prune builds/0.2.63-cpu-ba7f74e6 --yes
    """
    from ggufspec.doctor import storage
    from ggufspec.units import format_bytes

    items = storage.select(names)
    if not items:
        echo("nothing to delete", err=True)
        return
    sizes = {item.name: item.size_bytes for item in items}
    if not yes:
        _confirm(items, format_bytes(sum(sizes.values())), quiet=verbosity.current(ctx).quiet)
    for item in items:
        storage.remove(item)
        echo(f"deleted {item.name} ({format_bytes(sizes[item.name])})")


def _confirm(items: Sequence[storage.StoredItem], total: str, *, quiet: bool) -> None:
    from ggufspec.errors import ConsentNeededError
    from ggufspec.units import counted

    question = f"{counted(len(items), 'item')} of {total}"
    if quiet or not sys.stdin.isatty():
        raise ConsentNeededError(f"{question} would be deleted, which needs confirmation", "add --yes")
    for item in items:
        echo(item.name, err=True)
    click.confirm(f"Delete {question}?", abort=True, err=True)


def _print_overview(output: str) -> None:
    from ggufspec.doctor import storage
    from ggufspec.units import format_bytes

    rows = [(kind, *_total(storage.list_items([kind]))) for kind in storage.StorageKind]
    if output == "json":
        facts = [
            {
                "kind": kind.value,
                "items": count,
                "size_bytes": size_bytes,
                "shared": kind is storage.StorageKind.MODELS,
                "path": str(storage.root(kind)),
            }
            for kind, count, size_bytes in rows
        ]
        echo_json(facts)
        return
    cells = [
        [kind.value, str(count), format_bytes(size), _describe_folder(kind)] for kind, count, size in rows
    ]
    total = format_bytes(sum(size for kind, _, size in rows if kind is not storage.StorageKind.MODELS))
    echo_table(["kind", "items", "size", "where"], cells)
    echo(f"{total} without the models; `ggufspec cache list` lists every item", err=True)


def _total(items: Sequence[storage.StoredItem]) -> tuple[int, int]:
    return len(items), sum(item.size_bytes for item in items)


def _describe_folder(kind: storage.StorageKind) -> str:
    from ggufspec.doctor import storage

    return f"{storage.root(kind)}" + (
        " (shared with other programs)" if kind is storage.StorageKind.MODELS else ""
    )


def _print_items(items: Sequence[storage.StoredItem]) -> None:
    from ggufspec.units import format_bytes

    if not items:
        echo("nothing is stored", err=True)
        return
    rows = [
        [item.name, format_bytes(item.size_bytes), item.changed_at.date().isoformat(), item.note]
        for item in items
    ]
    echo_table(["name", "size", "changed", "note"], rows)
