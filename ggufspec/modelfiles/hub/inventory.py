"""What the Hub's cache holds of models, and its removal; the cache belongs to all programs of its user."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ggufspec import paths
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles.hub.cache import repo_dir
from ggufspec.modelfiles.hub.client import Access

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
    found = []
    for folder in sorted(access.cache_dir.glob(f"{_PREFIX}*")):
        unfinished = any(folder.glob("blobs/*.incomplete"))
        if folder.is_dir() and (unfinished or any((folder / "snapshots").rglob("*.gguf"))):
            found.append(
                CachedRepo(
                    repo=folder.name.removeprefix(_PREFIX).replace("--", "/", 1),
                    folder=folder,
                    size_bytes=paths.size_bytes(folder),
                    is_unfinished=unfinished,
                )
            )
    return tuple(found)


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
