"""Datasets on the Hub: listed at one commit, fetched into the Hub's usual cache and verified, or uploaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import huggingface_hub
from huggingface_hub import utils

from ggufspec import errors
from ggufspec.modelfiles.catalog import is_repo
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.modelfiles.hub.client import DATASET, Access, Listing, Subject, call, failures, listing, reason
from ggufspec.modelfiles.hub.download import fetch_files
from ggufspec.modelfiles.hub.survey import make_item

T = TypeVar("T")

_FORM = re.compile(r"(?P<repo>[^:@\s]+)(?:@(?P<revision>[^:\s]+))?(?::(?P<part>\S+))?")
_OF_THE_HUB = {".gitattributes"}  # files that the Hub puts into a new repository


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


def parse_dataset(text: str) -> DatasetReference:
    """Return the dataset that a text names.

    Raises:
        BadReferenceError: it names none.
    """
    match = _FORM.fullmatch(text)
    if match is None or not is_repo(match["repo"]):
        raise errors.BadReferenceError(
            f"not a dataset: {text!r}", "write USER/DATASET, USER/DATASET:PART or …@REVISION:PART"
        )
    return DatasetReference(**match.groupdict())


def fetch_dataset_files(found: Listing, files: Iterable[RepoFile], access: Access) -> tuple[Path, ...]:
    """Fetch files of a dataset into the cache, unless they are there, and return their paths.

    Raises:
        GatedRepositoryError: its terms have to be accepted first.
        CorruptDownloadError: a file is not what the Hub lists.
        GgufspecError: the class says what else went wrong, the hint what to do.
    """
    items = [make_item(found, file, found.commit, access) for file in files]
    for _ in fetch_files(items, access):
        pass
    return tuple(item.path for item in items)


def dataset_address(repo: str, access: Access) -> str:
    """Return the address of a dataset's page."""
    return f"{access.site}/datasets/{repo}"


def check_dataset(repo: str, access: Access) -> None:
    """Check what can be checked of an upload before anything is made for it; nothing is sent.

    Raises:
        BadReferenceError: it is not the name of a repository.
        NotCachedError: the Hub may not be asked.
        BadTokenError: there is no access token.
    """
    if not is_repo(repo):
        raise errors.BadReferenceError(f"{repo!r} is not the name of a dataset", "it is like user/dataset")
    if access.is_offline:
        raise errors.NotCachedError(
            f"{repo} cannot be uploaded: offline", "leave out --offline and HF_HUB_OFFLINE"
        )
    if not access.known_token:
        raise errors.BadTokenError(
            f"uploading to {access.host} needs an access token", "log in with hf auth login, or pass --token"
        )


def upload_dataset(
    files: Mapping[str, Path], repo: str, access: Access, *, public: bool, message: str
) -> str:
    """Create a dataset repository, upload files to it in one commit, and return the address of its page.

    huggingface_hub's ``upload_folder`` may make several commits of one folder; ``create_commit`` makes one.
    A repository that exists is used only if it is empty, as an interrupted upload leaves it.

    Args:
        files: by their paths in the repository.
        repo: such as ``user/dataset``.
        access: its token needs permission to write.
        public: whether everybody may see it.
        message: of the commit.

    Raises:
        BadTokenError: the token may not write there.
        GgufspecError: the repository has files or the other visibility, or the upload failed.
    """
    api = access.api()
    _write(lambda: api.create_repo(repo, repo_type=DATASET, private=not public, exist_ok=True), repo, access)
    present = listing(repo, None, access, DATASET)
    if {file.path for file in present.files} - _OF_THE_HUB:
        raise errors.GgufspecError(f"the dataset {repo} has files already", "name a new one")
    if present.is_public is not public:
        raise errors.GgufspecError(
            f"the dataset {repo} exists and is {'public' if present.is_public else 'private'}",
            "name a new one" + ("" if public else ", or add --public"),
        )

    def commit() -> None:
        operations = [
            huggingface_hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=file)
            for name, file in files.items()
        ]
        failure = None
        try:
            api.create_commit(repo, operations, commit_message=message, repo_type=DATASET)
        except RuntimeError as error:  # wraps the failure of a file's upload, which says what to do
            failure = error
        if failure is None:
            return
        if isinstance(failure.__cause__, failures()):
            raise failure.__cause__  # outside of the handler, else each would be the other's context
        raise errors.HubServerError(
            f"{access.host} did not take the files: {reason(failure)}", "try again later"
        ) from failure

    with without_progress():
        _write(commit, repo, access)
    return dataset_address(repo, access)


def _write(action: Callable[[], T], repo: str, access: Access) -> T:
    """Do ``action``, which needs permission to write."""
    try:
        return call(action, Subject(repo=repo, kind=DATASET), access)
    except errors.GatedRepositoryError as error:
        raise errors.BadTokenError(
            f"{access.host} does not let this access token write to {repo}",
            f"make one that may write at {access.site}/settings/tokens",
        ) from error


@contextmanager
def without_progress() -> Iterator[None]:
    """Keep the library's progress bars off, which would run into what we print."""
    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
