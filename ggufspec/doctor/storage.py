"""What ggufspec stores on this machine, its size, and its removal by name.

Everything except results and profiles can be built or downloaded again. Models are in the Hub's cache, which
other programs share. The cache does not record which program downloaded a model.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import filelock

from ggufspec import paths, results
from ggufspec.choices import StorageKind
from ggufspec.errors import GgufspecError
from ggufspec.llama.install import Built, store
from ggufspec.modelfiles import hub
from ggufspec.options import PruneOptions, takes

_UNFINISHED = "unfinished-builds"


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """An item that can be removed; ``places`` are its files and folders, the main one first."""

    kind: StorageKind
    label: str
    places: tuple[Path, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """The name on the command line: ``builds/0.3.36-cpu-1659bb9f``."""
        return f"{self.kind}/{self.label}"

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk; symbolic links are not followed."""
        return sum(map(paths.size_bytes, self.places))

    @property
    def changed_at(self) -> datetime:
        """Time of the last change, in local time."""
        return datetime.fromtimestamp(self.places[0].lstat().st_mtime).astimezone()


def root(kind: StorageKind) -> Path:
    """Return the folder of a kind."""
    folders = {
        StorageKind.BUILDS: paths.builds_dir(),
        StorageKind.SOURCES: paths.sources_dir(),
        StorageKind.CUDA: paths.cache_dir() / "cuda",
        StorageKind.MODELS: hub.Access().cache_dir,
        StorageKind.PROFILES: paths.data_dir() / "profiles",
        StorageKind.RESULTS: paths.runs_dir(),
    }
    return folders.get(kind, paths.cache_dir())


def list_items(wanted: Sequence[StorageKind] = tuple(StorageKind)) -> tuple[StoredItem, ...]:
    """Return the items of some kinds, in the order of ``StorageKind``."""
    return tuple(item for kind in StorageKind if kind in wanted for item in _LISTS[kind]())


def select(names: Sequence[str]) -> tuple[StoredItem, ...]:
    """Return the items of names: a kind for all its items, or one item. Models must be named one by one.

    Raises:
        GgufspecError: a name is unknown.
    """
    present, selected = list_items(), dict[str, StoredItem]()
    for name in names:
        if name == StorageKind.MODELS:
            raise GgufspecError(
                "other programs share the models, so name each model",
                "`ggufspec cache list models` lists them",
            )
        chosen = [item for item in present if name in {item.name, item.kind.value}]
        if not chosen and name not in list(StorageKind):
            close = get_close_matches(name, [*(item.name for item in present), *StorageKind], n=1)
            raise GgufspecError(
                f"there is no item {name!r}" + (f"; did you mean {close[0]}?" if close else ""),
                "`ggufspec cache list` lists the names",
            )
        selected |= {item.name: item for item in chosen}
    return tuple(selected.values())


@takes(PruneOptions)
def prune(asked: PruneOptions) -> tuple[StoredItem, ...]:
    """Delete what is stored under names, as ``ggufspec cache prune --yes`` does; return what was deleted.

    Raises:
        GgufspecError: a name is unknown, or an item is in use, cannot be removed, or is a link.
    """
    items = select(asked.names)
    for item in items:
        remove(item)
    return items


def remove(item: StoredItem) -> None:
    """Remove an item permanently.

    Raises:
        GgufspecError: it is in use, cannot be removed, or is a link.
    """
    folder = item.places[0]
    for path in item.places:
        _check(path)
    try:
        match item.kind:
            case StorageKind.BUILDS:
                store.delete(folder)
            case StorageKind.OTHER if item.label == _UNFINISHED:
                store.sweep()
            case StorageKind.MODELS:
                hub.delete_repo(item.label, hub.Access())
            case StorageKind.CUDA:
                with filelock.FileLock(folder.with_name(f".{folder.name}.lock"), timeout=0):
                    _delete(folder)
            case StorageKind.RESULTS:
                results.remove_folder(folder)
            case _:
                for path in item.places:
                    _delete(path)
    except filelock.Timeout as error:
        raise GgufspecError(f"{item.name} is in use by a build", "wait for it, then try again") from error
    except OSError as error:
        raise GgufspecError(f"{item.name} cannot be removed: {error.strerror}", f"check {folder}") from error


def _builds() -> Iterator[StoredItem]:
    for build in store.survey_builds():
        note = (
            f"llama.cpp {build.version}, {build.backend}"
            if isinstance(build, Built)
            else f"not used: {build.reason}"
        )
        yield _item(StorageKind.BUILDS, build.path, note=note)


def _sources() -> Iterator[StoredItem]:
    for archive in sorted(paths.sources_dir().glob("*/*.tar.gz")):
        hashed = archive.parent.with_name(archive.name.removesuffix(".tar.gz") + ".sha256")
        yield StoredItem(kind=StorageKind.SOURCES, label=archive.name, places=(archive.parent, hashed))


def _models() -> Iterator[StoredItem]:
    for cached in hub.cached_repos(hub.Access()):
        note = "unfinished download" if cached.is_unfinished else ""
        yield StoredItem(kind=StorageKind.MODELS, label=cached.repo, places=(cached.folder,), note=note)


def _other() -> Iterator[StoredItem]:
    builds, quantized = paths.builds_dir(), paths.quantized_dir()
    converter = "llama.cpp's converter, with PyTorch"
    flush = "lets programs write their logs to the end"
    items = (
        ("logs", builds / ".logs", "logs of failed builds"),
        (_UNFINISHED, builds / ".work", "remains of interrupted builds"),
        *((f"converter-{path.name}", path, converter) for path in _visible(paths.converters_dir())),
        (quantized.name, quantized, "drafters that were quantized here"),
        *((path.name, path, flush) for path in sorted(paths.cache_dir().glob("flush-log-*.so"))),
    )
    for label, path, note in items:
        if path.is_file() or _visible(path):
            yield StoredItem(kind=StorageKind.OTHER, label=label, places=(path,), note=note)


_PATTERNS: Mapping[StorageKind, tuple[str, str]] = {
    StorageKind.CUDA: ("[!.]*", "CUDA compiler and libraries"),
    StorageKind.DIGESTS: ("digests.sqlite*", "checksums of files"),
    StorageKind.PROFILES: ("*.json", "measured costs for forecasts"),
    StorageKind.RESULTS: ("[!.]*/", ""),
}
"""What is an item in the folder of a kind, and the note on it."""


def _matching(kind: StorageKind) -> Iterator[StoredItem]:
    pattern, note = _PATTERNS[kind]
    for path in sorted(root(kind).glob(pattern)):
        yield _item(kind, path, note=note)


_LISTS: Mapping[StorageKind, Callable[[], Iterator[StoredItem]]] = {
    StorageKind.BUILDS: _builds,
    StorageKind.SOURCES: _sources,
    StorageKind.MODELS: _models,
    StorageKind.OTHER: _other,
    **{kind: partial(_matching, kind) for kind in _PATTERNS},
}


def _item(kind: StorageKind, path: Path, *, note: str = "") -> StoredItem:
    return StoredItem(kind=kind, label=path.name, places=(path,), note=note)


def _visible(folder: Path) -> list[Path]:
    """Return the contents of a folder, without locks and work in progress."""
    return sorted(path for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []


def _check(path: Path) -> None:
    """Refuse a symbolic link inside our own folders.

    The folders that a user chooses may be links themselves.

    Raises:
        GgufspecError: the place, or a folder above it, is a link.
    """
    chosen = (paths.cache_dir(), paths.data_dir(), hub.Access().cache_dir)
    for folder in (path, *path.parents):
        if folder in chosen:
            return
        if folder.is_symlink():
            raise GgufspecError(f"{folder} is a link to another folder", "remove its target yourself")


def _delete(path: Path) -> None:
    """Remove a file or a folder; links in it are removed, not their targets."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
