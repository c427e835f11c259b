"""Shell completion of values: pairs, stored benches, local models, builds of llama.cpp.

There is no access to the network. Where something cannot be read, an error is raised, and nothing is offered.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Offered = list["CompletionItem"]
_PATH_LIKE = ("/", ".", "~")


def pairs(incomplete: str) -> Offered:
    """Offer the catalogue's names."""
    from ggufspec.modelfiles import catalog

    entries = catalog.read().entries
    return _items((name, entry.pair.target.filename) for name, entry in entries.items() if incomplete in name)


def tunings(incomplete: str) -> Offered:
    """Offer the stored benches that have a tuned configuration, the newest first."""
    from ggufspec import paths, results

    return _items(
        (name, None)
        for name in reversed(results.ids())
        if name.startswith(incomplete) and results.has_configuration(paths.runs_dir() / name)
    )


def runs(incomplete: str) -> Offered:
    """Offer the stored benches, the newest first."""
    from ggufspec import results

    return _items((name, None) for name in reversed(results.ids()) if name.startswith(incomplete))


def installs(incomplete: str) -> Offered:
    """Offer the folders of our builds; for anything that looks like a path, folders."""
    from ggufspec.llama.install import store

    builds = [(str(built.path), f"{built.version} {built.backend}") for built in store.installed()]
    items = _items((path, description) for path, description in builds if incomplete in path)
    return items or _delegate("dir", incomplete)


def models(incomplete: str) -> Offered:
    """Offer the GGUFs of this folder by path, and those of the Hub's cache as ``user/repo/file.gguf``."""
    return _list_models(incomplete) or _delegate("file", incomplete)


def models_and_pairs(incomplete: str) -> Offered:
    """Offer pairs and models."""
    return pairs(incomplete) + _list_models(incomplete) or _delegate("file", incomplete)


def keys(incomplete: str) -> Offered:
    """Offer the keys of settings."""
    from ggufspec.options import settings

    return _items((key, None) for key in settings.KEYS if key.startswith(incomplete))


def stored_items(incomplete: str) -> Offered:
    """Offer the kinds of stored items, and their names."""
    from ggufspec.choices import StorageKind
    from ggufspec.doctor import storage

    names = [*StorageKind, *(item.name for item in storage.list_items())]
    return _items((name, None) for name in names if name.startswith(incomplete))


def _list_models(incomplete: str) -> Offered:
    """Return the GGUFs of this folder and of the Hub's cache; nothing for what looks like a path."""
    if incomplete.startswith(_PATH_LIKE):
        return []
    from pathlib import Path

    from ggufspec.modelfiles import hub

    here = [path.name for path in sorted(Path().glob("*.gguf")) if incomplete in path.name]
    with suppress(GgufspecError, OSError):
        names = [f"{repo}/{name}" for repo, name, _ in hub.cached_files(hub.Access())]
        here += [name for name in names if incomplete.lower() in name.lower()]
    return _items((name, None) for name in here)


def _items(values: Iterable[tuple[str, str | None]]) -> Offered:
    from click.shell_completion import CompletionItem

    return [CompletionItem(value, help=description) for value, description in values]


def _delegate(kind: str, incomplete: str) -> Offered:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]
