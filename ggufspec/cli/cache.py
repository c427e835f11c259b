"""``ggufspec cache``: what is stored on this machine, its size, and how to delete it."""

from __future__ import annotations

from ggufspec.choices import StorageKind
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import AnswerOptions, CacheListOptions, PruneOptions
from ggufspec.units import counted, format_bytes


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
        echo_json(
            [
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
        )
    elif items:
        rows = [
            [item.name, format_bytes(item.size_bytes), item.changed_at.date().isoformat(), item.note]
            for item in items
        ]
        echo_table(["name", "size", "changed", "note"], rows)
    else:
        echo("nothing is stored", err=True)


@command_of(PruneOptions)
def prune(asked: PruneOptions) -> None:
    """Delete each NAME after confirmation: a complete kind, or a single item as `list` names it.

    Models must be named one by one.

    \b
    ggufspec cache prune sources
    ggufspec cache prune builds/0.2.63-cpu-ba7f74e6 --yes
    """
    from ggufspec.doctor import storage

    items = storage.select(asked.names)
    if not items:
        echo("nothing to delete", err=True)
        return
    sizes = {item.name: item.size_bytes for item in items}
    if not asked.yes:
        terminal, what = Terminal(), f"{counted(len(items), 'item')} of {format_bytes(sum(sizes.values()))}"
        terminal.refuse_unasked(f"deleting {what}")
        for item in items:
            echo(item.name, err=True)
        terminal.agree(f"Delete {what}?", f"deleting {what}")
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
    from ggufspec.doctor import storage

    items = {kind: storage.list_items([kind]) for kind in StorageKind}
    sizes = {kind: sum(item.size_bytes for item in of_kind) for kind, of_kind in items.items()}
    if asked.output == "json":
        echo_json(
            [
                {
                    "kind": kind.value,
                    "items": len(items[kind]),
                    "size_bytes": size,
                    "shared": kind is StorageKind.MODELS,
                    "path": str(storage.root(kind)),
                }
                for kind, size in sizes.items()
            ]
        )
        return
    shared = {StorageKind.MODELS: " (shared with other programs)"}
    cells = [
        [kind.value, str(len(items[kind])), format_bytes(size), f"{storage.root(kind)}{shared.get(kind, '')}"]
        for kind, size in sizes.items()
    ]
    echo_table(["kind", "items", "size", "where"], cells)
    own = sum(size for kind, size in sizes.items() if kind not in shared)
    echo(f"{format_bytes(own)} without the models; `ggufspec cache list` lists every item", err=True)
