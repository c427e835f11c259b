"""Models on this machine: the cache that all Hub tools share, and the files of it that were verified."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import huggingface_hub

from ggufspec import paths
from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles.hub.choice import RepoFile, split_names
from ggufspec.modelfiles.hub.client import Access, Listing


def repo_dir(repo: str, access: Access) -> Path:
    """Return the cache folder of a repository."""
    from huggingface_hub.file_download import repo_folder_name  # slow to import

    return access.cache_dir / repo_folder_name(repo_id=repo, repo_type="model")


def find_cached_file(repo: str, filename: str, revision: str | None, access: Access) -> Path | None:
    """Return the path of a cached file; None if it or any of its parts is missing.

    Files are renamed into the cache once they are complete, so a file that is found there was complete.
    """
    parts = [
        huggingface_hub.try_to_load_from_cache(repo, name, cache_dir=access.cache_dir, revision=revision)
        for name in split_names(filename)
    ]
    return Path(str(parts[0])) if all(isinstance(path, str) for path in parts) else None


def cached_files(access: Access) -> Iterator[tuple[str, str, Path]]:
    """Yield repository, file name and path of every GGUF in the cache."""
    for snapshot in sorted(access.cache_dir.glob("models--*/snapshots/*")):
        repo = snapshot.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
        for path in sorted(snapshot.rglob("*.gguf")):
            if path.is_file():
                yield repo, path.relative_to(snapshot).as_posix(), path


def listed_offline(repo: str, revision: str | None, access: Access) -> Listing | None:
    """Return a repository's commit and files as far as they are cached; None if nothing is."""
    ref = repo_dir(repo, access) / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    snapshot = repo_dir(repo, access) / "snapshots" / (commit or "")
    if commit is None or not snapshot.is_dir():
        return None
    files = tuple(
        RepoFile(
            path=path.relative_to(snapshot).as_posix(),
            size_bytes=path.stat().st_size,
            digest=path.resolve().name,  # the cache names its blobs by their digest
        )
        for path in sorted(snapshot.rglob("*"))
        if path.is_file()
    )
    return Listing(repo=repo, commit=commit, gated=False, files=files)


def remember_fetched(pair: Pair) -> None:
    """Record the pair that was fetched last: the default of a bench."""
    write_atomically(_last_pair_file(), json.dumps(asdict(pair), indent=1, default=str))


def last_fetched() -> Pair | None:
    """Return the pair that was fetched last if its files are still there, else None."""
    pair = remembered_pair()
    models = () if pair is None else (pair.target, pair.draft)
    return pair if all(model.path and model.path.is_file() for model in models if model) else None


def remembered_pair() -> Pair | None:
    """Return the pair that was fetched last, whether its files are still there or not."""
    table = _read_json(_last_pair_file())
    with suppress(KeyError, TypeError):
        draft = None if table["draft"] is None else _model(table["draft"])
        return Pair(name=table["name"], target=_model(table["target"]), draft=draft)
    return None


def origin(path: Path) -> ModelFile | None:
    """Return which file of the Hub a path in its cache stands for; None for any other path."""
    parts = path.absolute().parts
    for at, name in enumerate(parts[:-3]):
        if name.startswith("models--") and parts[at + 1] == "snapshots":
            repo = name.removeprefix("models--").replace("--", "/", 1)
            return ModelFile(filename="/".join(parts[at + 3 :]), repo=repo, revision=parts[at + 2])
    return None


def write_atomically(file: Path, text: str) -> None:
    """Replace a file's content in one step: a reader sees the old text or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as new:
        new.write(text)
    publish(Path(name), file)


def publish(complete: Path, path: Path) -> None:
    """Give a file its final name; after a power cut it is there with all of its bytes, or not at all."""
    paths.sync(complete)
    complete.replace(path)
    with suppress(OSError):  # some network file systems cannot sync a folder
        paths.sync(path.parent)


def _model(table: dict[str, Any]) -> ModelFile:
    return ModelFile(**{**table, "path": Path(table["path"])})


def _read_json(file: Path) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def _last_pair_file() -> Path:
    return paths.data_dir() / "last_pair.json"


_PREFIX = "models--"


@dataclass(frozen=True, kw_only=True)
class CachedRepo:
    """A repository with GGUF files, or with downloads that were not finished."""

    repo: str
    folder: Path
    size_bytes: int
    is_unfinished: bool


def cached_repos(access: Access) -> tuple[CachedRepo, ...]:
    """Return the repositories in the cache that hold models, whichever program fetched them."""
    repos = []
    for folder in sorted(access.cache_dir.glob(f"{_PREFIX}*")):
        unfinished = any(folder.glob("blobs/*.incomplete"))
        if folder.is_dir() and (unfinished or any((folder / "snapshots").rglob("*.gguf"))):
            repos.append(
                CachedRepo(
                    repo=folder.name.removeprefix(_PREFIX).replace("--", "/", 1),
                    folder=folder,
                    size_bytes=paths.size_bytes(folder),
                    is_unfinished=unfinished,
                )
            )
    return tuple(repos)


def delete_repo(repo: str, access: Access) -> None:
    """Remove everything that the cache holds of a repository.

    Raises:
        GgufspecError: its folder is a link to somewhere else.
    """
    folder = repo_dir(repo, access)
    if folder.is_symlink() or folder.parent != access.cache_dir:
        raise GgufspecError(f"{folder} is a link to another place", "remove it by hand")
    shutil.rmtree(folder)
    shutil.rmtree(access.cache_dir / ".locks" / folder.name, ignore_errors=True)
