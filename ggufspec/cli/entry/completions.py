"""Shell completion of values: pairs, stored benches, local models, builds of llama.cpp.

There is no access to the network, and no error: what cannot be read is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Offered = list["CompletionItem"]
_PATH_LIKE = ("/", ".", "~")


def pairs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the catalogue's names."""
    from ggufspec.modelfiles import catalog

    with suppress(GgufspecError):
        return _items(
            (name, entry.pair.target.filename)
            for name, entry in catalog.read().entries.items()
            if incomplete in name
        )
    return []


def tunings(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the stored benches that have a tuned configuration, the newest first."""
    from ggufspec import paths, results

    with suppress(GgufspecError, OSError):
        return _items(
            (name, None)
            for name in reversed(results.ids())
            if name.startswith(incomplete) and results.has_configuration(paths.runs_dir() / name)
        )
    return []


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the stored benches, the newest first."""
    from ggufspec import results

    with suppress(GgufspecError, OSError):
        return _items((name, None) for name in reversed(results.ids()) if name.startswith(incomplete))
    return []


def installs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the folders of our builds; for anything that looks like a path, folders."""
    from ggufspec.llama.install import store

    builds = [(str(built.path), f"{built.version} {built.backend}") for built in store.installed()]
    items = _items((path, description) for path, description in builds if incomplete in path)
    return items or _delegate("dir", incomplete)


def models(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the GGUFs of this folder by path, and those of the Hub's cache as ``user/repo/file.gguf``."""
    return _list_folder(incomplete) + _list_cache(incomplete) or _delegate("file", incomplete)


def models_and_pairs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer pairs and models."""
    catalogued = pairs(ctx, param, incomplete)
    local = _list_folder(incomplete) + _list_cache(incomplete)
    return catalogued + local or _delegate("file", incomplete)


def keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the keys of settings."""
    from ggufspec.options import settings

    return _items((key, None) for key in settings.KEYS if key.startswith(incomplete))


def stored_items(ctx: click.Context, param: click.Parameter, incomplete: str) -> Offered:
    """Offer the kinds of stored items, and their names."""
    from ggufspec.choices import StorageKind
    from ggufspec.doctor import storage

    names = [*StorageKind, *(item.name for item in storage.list_items())]
    return _items((name, None) for name in names if name.startswith(incomplete))


def _list_folder(incomplete: str) -> Offered:
    if incomplete.startswith(_PATH_LIKE):
        return []
    from pathlib import Path

    return _items((path.name, None) for path in sorted(Path().glob("*.gguf")) if incomplete in path.name)


def _list_cache(incomplete: str) -> Offered:
    if incomplete.startswith(_PATH_LIKE):
        return []
    from ggufspec.modelfiles import hub

    with suppress(GgufspecError, OSError):
        names = [f"{repo}/{name}" for repo, name, _ in hub.cached_files(hub.Access())]
        return _items((name, None) for name in names if incomplete.lower() in name.lower())
    return []


def _items(values: Iterable[tuple[str, str | None]]) -> Offered:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=description) for value, description in values]


def _delegate(kind: str, incomplete: str) -> Offered:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]
