"""``ggufspec cache``: what is stored on this machine, its size, and how to delete it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggufspec.choices import StorageKind
from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.options import AnswerOptions, CacheListOptions, PruneOptions

if TYPE_CHECKING:
    from ggufspec.doctor import storage


@command_of(CacheListOptions)
def listed(asked: CacheListOptions) -> None:
    """List the items of each KIND, or of all kinds, with the names that `prune` accepts.

    \b
    ggufspec cache list
    ggufspec cache list builds models -o json
    """
    from ggufspec.doctor import storage

    items = storage.list_items([*map(StorageKind, asked.kinds)] or tuple(StorageKind))
    if asked.output == "json":
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


@command_of(PruneOptions)
def prune(asked: PruneOptions) -> None:
    """Delete each NAME after confirmation: a complete kind, or a single item as `list` names it.

    Models must be named one by one.

    \b
    ggufspec cache prune sources
    ggufspec cache prune builds/0.2.63-cpu-ba7f74e6 --yes
    """
    from ggufspec.doctor import storage
    from ggufspec.units import format_bytes

    items = storage.select(asked.names)
    if not items:
        echo("nothing to delete", err=True)
        return
    sizes = {item.name: item.size_bytes for item in items}
    if not asked.yes:
        _confirm(
            items,
            format_bytes(sum(sizes.values())),
            quiet=verbosity.current(click.get_current_context()).quiet,
        )
    for item in items:
        storage.remove(item)
        echo(f"deleted {item.name} ({format_bytes(sizes[item.name])})")


@group_of(AnswerOptions, list=listed, prune=prune)
def cache(asked: AnswerOptions) -> None:
    """Show the disk space of builds, sources, models and results, and free it.

    The kinds are builds, sources, cuda, models, digests, other, profiles and results. Profiles and results
    are measurements; the others can be built or downloaded again. Models are in the Hub's cache, which other
    programs share.

    \b
    ggufspec cache
    ggufspec cache list builds
    ggufspec cache prune sources builds/0.2.63-cpu-ba7f74e6
    """
    _print_overview(asked.output)


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

    rows = [(kind, *_total(storage.list_items([kind]))) for kind in StorageKind]
    if output == "json":
        facts = [
            {
                "kind": kind.value,
                "items": count,
                "size_bytes": size_bytes,
                "shared": kind is StorageKind.MODELS,
                "path": str(storage.root(kind)),
            }
            for kind, count, size_bytes in rows
        ]
        echo_json(facts)
        return
    cells = [
        [kind.value, str(count), format_bytes(size), _describe_folder(kind)] for kind, count, size in rows
    ]
    total = format_bytes(sum(size for kind, _, size in rows if kind is not StorageKind.MODELS))
    echo_table(["kind", "items", "size", "where"], cells)
    echo(f"{total} without the models; `ggufspec cache list` lists every item", err=True)


def _total(items: Sequence[storage.StoredItem]) -> tuple[int, int]:
    return len(items), sum(item.size_bytes for item in items)


def _describe_folder(kind: StorageKind) -> str:
    from ggufspec.doctor import storage

    return f"{storage.root(kind)}" + (" (shared with other programs)" if kind is StorageKind.MODELS else "")


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
