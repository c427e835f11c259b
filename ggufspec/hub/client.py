"""The calls to the Hub through huggingface_hub: bounded retries, and its errors in our words."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants, errors, hf_hub_url
from huggingface_hub.hf_api import RepoFile as ListedFile
from huggingface_hub.utils import build_hf_headers, logging

from ggufspec.errors import (
    BadTokenError,
    DiskFullError,
    GatedRepositoryError,
    GgufspecError,
    HubServerError,
    NetworkError,
    NotCachedError,
    RateLimitedError,
    RemoteFileNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from ggufspec.hub.choice import RepoFile
from ggufspec.units import format_duration

T = TypeVar("T")

HTTP_ERROR: type[Exception] = errors.HfHubHTTPError.__mro__[1]
"""The base of all errors of the HTTP library that this huggingface_hub uses (httpx, in 2.x httpx2)."""

FAILURES = (OSError, HTTP_ERROR)
ATTEMPTS = 5
LONGEST_WAIT_S = 300.0
_BUSY = (408, 429, 500, 502, 503, 504)
_SPENT = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d+)")  # RateLimit: "api";r=0;t=55, the draft RFC's form
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Its warnings ("Retrying in 2s [Retry 1/5].") would run into our progress bars; what matters in them arrives
# as an error or a progress value. HF_HUB_VERBOSITY brings them back.
if "HF_HUB_VERBOSITY" not in os.environ:
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, kw_only=True)
class Access:
    """How the Hub may be asked. ``token`` None means the usual login; it never appears in a repr."""

    token: str | None = field(default=None, repr=False)
    offline: bool = False
    cache_dir: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))
    local_dir: Path | None = None
    endpoint: str = field(default_factory=lambda: os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)

    @property
    def is_offline(self) -> bool:
        """Whether no request may be sent: our option, or HF_HUB_OFFLINE."""
        return self.offline or constants.HF_HUB_OFFLINE

    @property
    def host(self) -> str:
        """The Hub's host, for messages."""
        return urlsplit(self.endpoint).netloc

    def headers(self) -> dict[str, str]:
        """Return the headers of a download: the login, and no compression, so that ranges mean bytes."""
        return {
            **build_hf_headers(token=self.token, library_name="ggufspec"),
            "Accept-Encoding": "identity",
        }

    def url(self, repo: str, filename: str, revision: str) -> str:
        """Return the address that serves a file."""
        return hf_hub_url(repo, filename, revision=revision, endpoint=self.endpoint)

    def api(self) -> HfApi:
        """Return the client for everything but downloads."""
        return HfApi(endpoint=self.endpoint, token=self.token, library_name="ggufspec")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a repository holds at one commit."""

    repo: str
    commit: str
    gated: bool
    files: tuple[RepoFile, ...]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a request is about, for messages."""

    repo: str
    revision: str | None = None
    filename: str | None = None


def listing(repo: str, revision: str | None, access: Access) -> Listing:
    """Ask the Hub for a repository's commit and files.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    api, about = access.api(), Subject(repo=repo, revision=revision)
    info = call(lambda: api.model_info(repo, revision=revision, timeout=30), about, access)
    commit = info.sha
    if commit is None:
        raise HubServerError(f"{access.host} names no commit for {repo}", "is HF_ENDPOINT a Hub?")
    tree = call(lambda: list(api.list_repo_tree(repo, recursive=True, revision=commit)), about, access)
    files = tuple(
        RepoFile(
            path=entry.path,
            size_bytes=entry.lfs.size if entry.lfs else entry.size,
            digest=entry.lfs.sha256 if entry.lfs else entry.blob_id,
        )
        for entry in tree
        if isinstance(entry, ListedFile)  # the rest are folders
    )
    return Listing(repo=repo, commit=commit, gated=bool(info.gated), files=files)


def call(action: Callable[[], T], about: Subject, access: Access) -> T:
    """Do ``action``; try again while the Hub is busy, wait as long as it asks, and translate what remains."""
    attempt = 1
    while True:
        try:
            return action()
        except FAILURES as error:
            pause = pause_before_retry(error, attempt)
            if pause is None:
                raise translated(error, about, access) from error
        time.sleep(pause)
        attempt += 1


def pause_before_retry(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, or None if there should be none.

    A busy Hub says how long (Retry-After, or its rate-limit headers); else 1, 2, 4, 8 s. Broken connections
    are tried again like a busy Hub; what cannot even be connected to, only once.
    """
    if attempt >= ATTEMPTS or getattr(error, "errno", None) in _NO_ROOM:
        return None
    if isinstance(error, errors.HfHubHTTPError):
        if error.response.status_code not in _BUSY:
            return None
        told = _told_to_wait(error)
        return min(2.0 ** (attempt - 1), 8.0) if told is None else told if told <= LONGEST_WAIT_S else None
    if isinstance(error, errors.OfflineModeIsEnabled) or not isinstance(error, HTTP_ERROR):
        return None
    cannot_connect = "Connect" in type(error).__name__
    return None if cannot_connect and attempt > 1 else min(2.0 ** (attempt - 1), 8.0)


def reason(error: Exception) -> str:
    """Return what an error says, in one line; its kind if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _told_to_wait(error: errors.HfHubHTTPError) -> float | None:
    headers = error.response.headers
    if headers.get("Retry-After", "").strip().isdigit():
        return float(headers["Retry-After"])
    spent = _SPENT.search(headers.get("RateLimit", ""))
    return float(spent[1]) if spent else None


def translated(error: Exception, about: Subject, access: Access) -> GgufspecError:
    """Return the error of ours that says what went wrong and what to do."""
    repo, page = about.repo, f"{access.endpoint}/{about.repo}"
    revision = about.revision or "main"
    match error:
        case errors.GatedRepoError():
            return _gated(repo, page)
        case errors.RepositoryNotFoundError() | errors.DisabledRepoError():
            return RepositoryNotFoundError(
                f"{access.host} has no repository {repo}, or it is private",
                "check the spelling; for a private one: hf auth login, or --token",
            )
        case errors.RevisionNotFoundError():
            return RevisionNotFoundError(
                f"{repo} has no revision {revision}", f"its branches and tags: {page}/tree/main"
            )
        case errors.EntryNotFoundError() if isinstance(error, errors.HfHubHTTPError):
            return RemoteFileNotFoundError(
                f"{repo} has no file {about.filename} at {revision}", f"its files: {page}/tree/{revision}"
            )
        case errors.HfHubHTTPError():
            return _by_status(error, repo, page, access)
        case errors.OfflineModeIsEnabled():
            return NotCachedError(
                f"{repo} cannot be asked for: offline", "leave out --offline and HF_HUB_OFFLINE"
            )
        case OSError() if error.errno in _NO_ROOM:
            return DiskFullError(
                f"the disk is full: {error.strerror}",
                "free some space, then run the same command: it resumes",
            )
        case OSError() if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return GgufspecError(f"cannot write: {error}", "choose another place with --local-dir or HF_HOME")
    return NetworkError(
        f"{access.host} cannot be reached: {reason(error)}",
        "check the connection and HF_ENDPOINT; --offline works with what is cached; downloads resume",
    )


def _by_status(error: errors.HfHubHTTPError, repo: str, page: str, access: Access) -> GgufspecError:
    match error.response.status_code:
        case 401:
            return BadTokenError(
                f"{access.host} does not accept the access token",
                "log in again with hf auth login, or check --token and HF_TOKEN",
            )
        case 403:
            return _gated(repo, page)
        case 429:
            told = _told_to_wait(error)
            when = "later" if told is None else f"in {format_duration(told)}"
            return RateLimitedError(
                f"{access.host} limits how often it is asked: try again {when}",
                "logged-in users are limited less: hf auth login",
            )
        case status:
            return HubServerError(
                f"{access.host} answers {status} after {ATTEMPTS} attempts",
                "try again later (https://status.huggingface.co); downloads resume",
            )


def _gated(repo: str, page: str) -> GatedRepositoryError:
    return GatedRepositoryError(
        f"{repo} is gated: its files need permission",
        f"accept its terms at {page}, then log in with hf auth login, or pass --token",
    )
