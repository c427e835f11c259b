"""Files of datasets on the Hub: listed at one commit, fetched into the Hub's usual cache, and verified."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub import utils

from ggufspec import digests
from ggufspec.errors import BadReferenceError, CorruptDownloadError, HubServerError, NotCachedError
from ggufspec.modelfiles.hub.client import PATIENCE_S, Access, Subject, call
from ggufspec.modelfiles.hub.upload import without_progress

_TYPE = "dataset"
_FORM = re.compile(r"(?P<repo>[^:@\s]+)(?:@(?P<revision>[^:\s]+))?(?::(?P<part>\S+))?")


@dataclass(frozen=True, kw_only=True)
class DatasetReference:
    """A dataset as a user names it: ``user/dataset``, with ``@revision`` and ``:part`` where they are given.

    ``part`` is a configuration or a split, by the names of folders and files.
    """

    repo: str
    revision: str | None = None
    part: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision is None else f"@{self.revision}"
        return f"{self.repo}{revision}{'' if self.part is None else f':{self.part}'}"


@dataclass(frozen=True, kw_only=True)
class DatasetFile:
    """A file of a dataset at a commit; ``sha256`` is known of files that the Hub stores as large ones."""

    path: str
    size_bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetListing:
    """The files of a dataset at one commit."""

    repo: str
    commit: str
    files: tuple[DatasetFile, ...]


def parse_dataset(text: str) -> DatasetReference:
    """Return the dataset that a text names.

    Raises:
        BadReferenceError: it names none.
    """
    match = _FORM.fullmatch(text)
    try:
        if match is not None and match["repo"].count("/") == 1:
            utils.validate_repo_id(match["repo"])
            return DatasetReference(repo=match["repo"], revision=match["revision"], part=match["part"])
    except ValueError:  # huggingface_hub's validation errors are ValueErrors
        pass
    raise BadReferenceError(
        f"not a dataset: {text!r}", "write USER/DATASET, USER/DATASET:PART or …@REVISION:PART"
    )


def list_dataset(reference: DatasetReference, access: Access) -> DatasetListing:
    """Return the files of a dataset: by the Hub, or offline by the newest commit in the cache.

    Raises:
        GatedRepositoryError: its terms have to be accepted first.
        NotCachedError: the Hub may not be asked, and nothing is cached.
        GgufspecError: the class says what else went wrong, the hint what to do.
    """
    if access.is_offline:
        return _list_cached(reference, access)
    api, repo = access.api(), reference.repo
    info = call(
        lambda: api.dataset_info(repo, revision=reference.revision, files_metadata=True, timeout=PATIENCE_S),
        _subject(reference),
        access,
    )
    if info.sha is None or not re.fullmatch(r"[\w-]+", info.sha):  # it becomes the name of a folder
        raise HubServerError(f"{access.host} returned no commit for {repo}", "is HF_ENDPOINT a Hub?")
    files = tuple(
        DatasetFile(
            path=sibling.rfilename,
            size_bytes=sibling.size,
            sha256=None if sibling.lfs is None else sibling.lfs.sha256,
        )
        for sibling in info.siblings or ()
    )
    return DatasetListing(repo=repo, commit=info.sha, files=files)


def fetch_dataset_files(
    listing: DatasetListing, files: Iterable[DatasetFile], access: Access
) -> tuple[Path, ...]:
    """Fetch files of a dataset into the cache, unless they are there, and return their paths.

    Raises:
        GatedRepositoryError: its terms have to be accepted first.
        CorruptDownloadError: a file is not what the Hub lists.
        GgufspecError: the class says what else went wrong, the hint what to do.
    """
    return tuple(_fetch(listing, file, access) for file in files)


def _fetch(listing: DatasetListing, file: DatasetFile, access: Access) -> Path:
    def download() -> str:
        with without_progress():
            return huggingface_hub.hf_hub_download(
                listing.repo,
                file.path,
                repo_type=_TYPE,
                revision=listing.commit,
                cache_dir=access.cache_dir,
                endpoint=access.endpoint,
                token=access.token,
                etag_timeout=PATIENCE_S,
                local_files_only=access.is_offline,
            )

    subject = Subject(repo=f"datasets/{listing.repo}", revision=listing.commit, filename=file.path)
    path = Path(call(download, subject, access, is_transfer=True))
    if file.sha256 is not None and digests.of_file(path).sha256 != file.sha256:
        raise CorruptDownloadError(
            f"{path} is not what {access.host} lists: its SHA-256 differs",
            "remove it, and run the command again",
        )
    return path


def _list_cached(reference: DatasetReference, access: Access) -> DatasetListing:
    folder = access.cache_dir / f"datasets--{reference.repo.replace('/', '--')}"
    wanted = reference.revision or "main"
    pointer = folder / "refs" / wanted
    commit = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else wanted
    snapshot = folder / "snapshots" / commit
    files = sorted(file for file in snapshot.rglob("*") if file.is_file())
    if not files:
        raise NotCachedError(
            f"the dataset {reference.repo} is not in the cache, and it is not looked up: offline",
            "leave out --offline and HF_HUB_OFFLINE once",
        )
    return DatasetListing(
        repo=reference.repo,
        commit=commit,
        files=tuple(DatasetFile(path=str(file.relative_to(snapshot))) for file in files),
    )


def _subject(reference: DatasetReference) -> Subject:
    return Subject(repo=f"datasets/{reference.repo}", revision=reference.revision)
