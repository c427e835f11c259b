"""What ggufspec keeps on this machine, how much room it takes, and its removal by name.

Everything but results and profiles can be made or fetched again. Models lie in the Hub's cache, which other
programs share; which program fetched one is not recorded there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

import filelock

from ggufspec import paths
from ggufspec.errors import GgufspecError
from ggufspec.llama.install import Built, store
from ggufspec.modelfiles import hub
from ggufspec.results import Lock

_UNFINISHED = "unfinished-builds"


class StorageKind(StrEnum):
    """What something is; the first part of its name."""

    BUILDS = "builds"
    SOURCES = "sources"
    CUDA = "cuda"
    MODELS = "models"
    DIGESTS = "digests"
    OTHER = "other"
    PROFILES = "profiles"
    RESULTS = "results"


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """Something that can be removed; ``places`` are its files and folders, the main one first."""

    kind: StorageKind
    label: str
    places: tuple[Path, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """What a user calls it: ``builds/0.3.36-cpu-1659bb9f``."""
        return f"{self.kind}/{self.label}"

    @property
    def size_bytes(self) -> int:
        """What it takes; symbolic links are not followed."""
        return sum(map(paths.size_bytes, self.places))

    @property
    def changed_at(self) -> datetime:
        """When it was last written, in local time."""
        return datetime.fromtimestamp(self.places[0].lstat().st_mtime).astimezone()


def root(kind: StorageKind) -> Path:
    """Return the folder in which everything of a kind lies."""
    folders = {
        StorageKind.BUILDS: paths.builds_dir(),
        StorageKind.SOURCES: paths.sources_dir(),
        StorageKind.CUDA: paths.cache_dir() / "cuda",
        StorageKind.MODELS: hub.Access().cache_dir,
        StorageKind.PROFILES: paths.data_dir() / "profiles",
        StorageKind.RESULTS: paths.runs_dir(),
    }
    return folders.get(kind, paths.cache_dir())


def list_items(kinds: Sequence[StorageKind] = tuple(StorageKind)) -> tuple[StoredItem, ...]:
    """Return everything of some kinds, in the order of ``Kind``."""
    return tuple(item for kind in StorageKind if kind in kinds for item in _LISTS[kind]())


def select(names: Sequence[str]) -> tuple[StoredItem, ...]:
    """Return what names mean: a kind for all of it, or one item's name. Models are named one by one.

    Raises:
        GgufspecError: a name means nothing.
    """
    present, selected = list_items(), dict[str, StoredItem]()
    for name in names:
        if name == StorageKind.MODELS:
            raise GgufspecError(
                "other programs share the models, so each has to be named",
                "`ggufspec cache list models` lists them",
            )
        chosen = [item for item in present if name in {item.name, item.kind.value}]
        if not chosen and name not in list(StorageKind):
            close = get_close_matches(name, [*(item.name for item in present), *StorageKind], n=1)
            raise GgufspecError(
                f"there is nothing called {name!r}" + (f"; did you mean {close[0]}?" if close else ""),
                "`ggufspec cache list` lists what can be named",
            )
        selected |= {item.name: item for item in chosen}
    return tuple(selected.values())


def remove(item: StoredItem) -> None:
    """Remove something for good.

    Raises:
        GgufspecError: it is in use, cannot be removed, or is a link to somewhere else.
    """
    place = item.places[0]
    for one in item.places:
        _check(one)
    try:
        match item.kind:
            case StorageKind.BUILDS:
                store.delete(place)
            case StorageKind.OTHER if item.label == _UNFINISHED:
                store.sweep()
            case StorageKind.MODELS:
                hub.delete_repo(item.label, hub.Access())
            case StorageKind.CUDA:
                with filelock.FileLock(place.with_name(f".{place.name}.lock"), timeout=0):
                    _delete(place)
            case StorageKind.RESULTS:
                with Lock(place) as lock:
                    _delete(place)
                    lock.release()
            case _:
                for one in item.places:
                    _delete(one)
    except filelock.Timeout as error:
        raise GgufspecError(f"{item.name} is in use by a build", "wait for it, then try again") from error
    except OSError as error:
        raise GgufspecError(f"{item.name} cannot be removed: {error.strerror}", f"look at {place}") from error


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


def _cuda() -> Iterator[StoredItem]:
    for folder in _visible(root(StorageKind.CUDA)):
        yield _item(StorageKind.CUDA, folder, note="CUDA's compiler and libraries")


def _models() -> Iterator[StoredItem]:
    for cached in hub.cached_repos(hub.Access()):
        note = "a download that was not finished" if cached.is_unfinished else ""
        yield StoredItem(kind=StorageKind.MODELS, label=cached.repo, places=(cached.folder,), note=note)


def _digests() -> Iterator[StoredItem]:
    for pattern in ("digests.sqlite*", "verified.json*"):
        for file in sorted(paths.cache_dir().glob(pattern)):
            yield _item(StorageKind.DIGESTS, file, note="files that were hashed")


def _other() -> Iterator[StoredItem]:
    logs, work = (paths.builds_dir() / name for name in (".logs", ".work"))
    if _visible(logs):
        yield StoredItem(kind=StorageKind.OTHER, label="logs", places=(logs,), note="of builds that failed")
    if _visible(work):
        yield StoredItem(
            kind=StorageKind.OTHER, label=_UNFINISHED, places=(work,), note="what killed builds left"
        )
    for file in sorted(paths.cache_dir().glob("vega-*.js")):
        yield _item(StorageKind.OTHER, file, note="draws charts in reports")


def _profiles() -> Iterator[StoredItem]:
    for file in sorted(root(StorageKind.PROFILES).glob("*.json")):
        yield _item(StorageKind.PROFILES, file, note="measured costs, which forecasts use")


def _results() -> Iterator[StoredItem]:
    for folder in _visible(paths.runs_dir()):
        if folder.is_dir():
            yield _item(StorageKind.RESULTS, folder)


_LISTS: Mapping[StorageKind, Callable[[], Iterator[StoredItem]]] = {
    StorageKind.BUILDS: _builds,
    StorageKind.SOURCES: _sources,
    StorageKind.CUDA: _cuda,
    StorageKind.MODELS: _models,
    StorageKind.DIGESTS: _digests,
    StorageKind.OTHER: _other,
    StorageKind.PROFILES: _profiles,
    StorageKind.RESULTS: _results,
}


def _item(kind: StorageKind, place: Path, *, note: str = "") -> StoredItem:
    return StoredItem(kind=kind, label=place.name, places=(place,), note=note)


def _visible(folder: Path) -> list[Path]:
    """Return what is in a folder, without locks and work in progress."""
    return sorted(path for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []


def _check(place: Path) -> None:
    """Refuse to go through a symbolic link from our own folders to a place outside of them.

    The folders that a user may choose can be links themselves.

    Raises:
        GgufspecError: the place, or a folder between it and the chosen one, is a link.
    """
    chosen = (paths.cache_dir(), paths.data_dir(), hub.Access().cache_dir)
    for folder in (place, *place.parents):
        if folder in chosen:
            return
        if folder.is_symlink():
            raise GgufspecError(f"{folder} is a link to another place", "remove by hand what it leads to")


def _delete(place: Path) -> None:
    """Remove a file or a folder; links in it are removed, never what they lead to."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
