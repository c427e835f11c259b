"""The calls to the Hub through huggingface_hub: bounded retries, and its errors in our words.

huggingface_hub imports its parts, and the HTTP library, when they are first named. So they are named where
they are used: a command that does not ask the Hub starts 0.1 s earlier.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import huggingface_hub
import msgspec

from ggufspec import errors, hosts
from ggufspec.hosts import BrokenAnswerError, NoConnectionError, SlowAnswerError
from ggufspec.modelfiles.hub.answers import read_json
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.options import HubOptions
from ggufspec.redaction import Redacting, redact
from ggufspec.units import format_duration

try:
    from huggingface_hub import constants, utils  # read the Hub's variables
    from huggingface_hub.utils import logging as hub_logging
except ValueError:  # its message may hold a password
    raise errors.GgufspecError(
        "a variable of the Hugging Face Hub has a value that cannot be read",
        "check HF_ENDPOINT, and each HF_HUB_* that is set",
    ) from None

if TYPE_CHECKING:
    from huggingface_hub import errors as hub_errors

T = TypeVar("T")

MODEL, DATASET = "model", "dataset"
"""What huggingface_hub calls these kinds of repositories."""

ATTEMPTS = 5
FIRST_PAUSE_S = 1.0
"""Before the second attempt; each further pause is twice as long, up to eight times this."""
LONGEST_WAIT_S = 300.0

WITHOUT_HUB = (
    "Without the Hub, the embedded pair works (ggufspec demo), and so do files on this machine and, with "
    "--offline, what is cached; other models wait"
)
"""What a first run can do without a network."""

_BUSY = (408, 429, 500, 502, 503, 504)
_SPENT = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d+)")  # RateLimit: "api";r=0;t=55, the draft RFC's form
_ADDRESS = re.compile(
    r"(?P<scheme>https?://)(?:[^\s/?#@]*@)?(?P<host>(?:[^\s/?#@:\[\]]+|\[[0-9a-fA-F:.]+\])(?::\d+)?)"
    r"(?P<path>/[^\s?#@]*)?"
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CHECK_CONNECTION = (
    "check the connection, a proxy and HF_ENDPOINT, then run the same command: downloads resume"
)
_LICENCE = "license:"  # begins the tag that states it
_LLAMA_ENDPOINT = "MODEL_ENDPOINT"  # llama.cpp's name for HF_ENDPOINT

# Its warnings ("Retrying in 2s [Retry 1/5].") would run into our progress bars; what matters in them arrives
# as an error or a progress value. HF_HUB_VERBOSITY brings them back.
if "HF_HUB_VERBOSITY" not in os.environ:
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
for _handler in logging.getLogger("huggingface_hub").handlers:  # it writes to stderr by itself
    _handler.addFilter(Redacting())


def failures() -> tuple[type[Exception], type[Exception]]:
    """Return the errors with which a request can fail."""
    import httpx2

    return OSError, httpx2.HTTPError


@dataclass(frozen=True, kw_only=True)
class Access:
    """How the Hub may be asked. ``token`` None means the usual login; it never appears in a repr."""

    token: str | None = field(default=None, repr=False)
    offline: bool = False
    cache_dir: Path = field(default_factory=lambda: Path(constants.HF_HUB_CACHE))
    local_dir: Path | None = None
    endpoint: str = field(
        default_factory=lambda: (
            os.environ.get("HF_ENDPOINT") or os.environ.get(_LLAMA_ENDPOINT) or constants.ENDPOINT
        ).rstrip("/"),
        repr=False,
    )

    @classmethod
    def of(cls, options: HubOptions) -> Access:
        """Return the access that options ask for."""
        return cls(token=options.token, offline=options.offline)

    @property
    def is_offline(self) -> bool:
        """Whether no request may be sent: our option, or HF_HUB_OFFLINE."""
        return self.offline or constants.HF_HUB_OFFLINE

    @property
    def host(self) -> str:
        """The Hub's host, for messages; without the login that HF_ENDPOINT may hold."""
        address = _ADDRESS.fullmatch(self.endpoint)
        return address["host"] if address else "HF_ENDPOINT"

    @property
    def site(self) -> str:
        """The Hub's address, for messages."""
        address = _ADDRESS.fullmatch(self.endpoint)
        return f"{address['scheme']}{address['host']}{address['path'] or ''}" if address else "HF_ENDPOINT"

    @property
    def known_token(self) -> str | None:
        """The token of requests: our option, or that of the usual login."""
        return self.token or huggingface_hub.get_token()

    def headers(self) -> dict[str, str]:
        """Return the headers of a download: the login, and no compression, so that ranges mean bytes.

        Raises:
            BadTokenError: the access token cannot be sent.
            GgufspecError: HF_ENDPOINT is not the address of a Hub.
        """
        self._check()
        return {
            **utils.build_hf_headers(token=self.token, library_name="ggufspec"),
            "Accept-Encoding": "identity",
        }

    def url(self, repo: str, filename: str, revision: str, kind: str = MODEL) -> str:
        """Return the address that serves a file."""
        return huggingface_hub.hf_hub_url(
            repo, filename, repo_type=kind, revision=revision, endpoint=self.endpoint
        )

    def api(self) -> huggingface_hub.HfApi:
        """Return the client for everything but downloads.

        Raises:
            BadTokenError: the access token cannot be sent.
            GgufspecError: HF_ENDPOINT is not the address of a Hub.
        """
        self._check()
        return huggingface_hub.HfApi(endpoint=self.endpoint, token=self.token, library_name="ggufspec")

    def _check(self) -> None:
        """Refuse what the HTTP library would refuse with a secret in its message."""
        if _ADDRESS.fullmatch(self.endpoint) is None:
            raise errors.GgufspecError(
                "HF_ENDPOINT is not the address of a Hub",
                "it is like https://huggingface.co; write %2F for a / in a password",
            )
        token = self.known_token or ""
        if not re.fullmatch(r"[!-~]*", token):
            raise errors.BadTokenError(
                "the access token contains a character that no token has, such as a space",
                "check --token and HF_TOKEN, or log in again with hf auth login",
            )


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a repository holds at one commit, and what is said of it.

    ``base_model`` is the model that it was made from, as its card names it.
    """

    repo: str
    commit: str
    gated: bool
    files: tuple[RepoFile, ...]
    kind: str = MODEL
    licence: str | None = None  # as its authors state it
    is_public: bool = False
    base_model: str | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a request is about, for messages."""

    repo: str
    revision: str | None = None
    filename: str | None = None
    kind: str = MODEL

    @property
    def page(self) -> str:
        """The path of its page on the Hub."""
        return self.repo if self.kind == MODEL else f"{self.kind}s/{self.repo}"


_Size = Annotated[int, msgspec.Meta(ge=0)]


class _LfsEntry(msgspec.Struct):
    size: _Size
    sha256: str


class _Entry(msgspec.Struct):
    """A file as the Hub's API lists it; outside of LFS it has the digest of git's blob."""

    rfilename: str
    size: _Size
    blobId: str  # noqa: N815  # the Hub's name
    lfs: _LfsEntry | None = None


class _Repository(msgspec.Struct):
    """A repository as the Hub's API describes it. Its card is of any form."""

    sha: Annotated[str, msgspec.Meta(pattern=r"^[\w-]+\Z")]  # it becomes the name of a folder
    gated: bool | str = False
    private: bool = True
    tags: list[str] = []
    siblings: list[_Entry] = []
    cardData: Any = None  # noqa: N815  # the Hub's name


def file_size(repo: str, filename: str, revision: str, access: Access) -> int | None:
    """Ask for the size of a file: everybody may list those of a gated repository, but not read them.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    api, url = access.api(), access.url(repo, filename, revision)
    subject = Subject(repo=repo, revision=revision, filename=filename)
    ask = partial(api.get_hf_file_metadata, url=url, token=access.token)
    session = utils.get_session()
    hooks = session.event_hooks
    if hosts.watch not in hooks["request"]:  # huggingface_hub makes this request itself
        session.event_hooks = {**hooks, "request": [*hooks["request"], hosts.watch]}
    return call(ask, subject, access, hosts.ANSWER_S).size


def listing(repo: str, revision: str | None, access: Access, kind: str = MODEL) -> Listing:
    """Ask the Hub for the commit and the files of a repository, of models or of a dataset.

    The list is one answer; from 50,000 files on the Hub may leave some out.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    subject = Subject(repo=repo, revision=revision, kind=kind)
    at = "" if revision is None else f"/revision/{quote(revision, safe='')}"
    told = get(f"{kind}s/{repo}{at}", _Repository, subject, access, {"blobs": 1})
    stated = (tag.removeprefix(_LICENCE) for tag in told.tags if tag.startswith(_LICENCE))
    base = told.cardData.get("base_model") if isinstance(told.cardData, dict) else None
    base = base[0] if isinstance(base, list) and base else base
    return Listing(
        repo=repo,
        commit=told.sha,
        kind=kind,
        gated=bool(told.gated),
        files=tuple(
            RepoFile(path=file.rfilename, size_bytes=file.size, digest=file.blobId)
            if file.lfs is None
            else RepoFile(path=file.rfilename, size_bytes=file.lfs.size, digest=file.lfs.sha256)
            for file in told.siblings
        ),
        licence=next(stated, None),
        is_public=not told.private,
        base_model=base if isinstance(base, str) else None,
    )


def is_public(repo: str, access: Access) -> bool:
    """Return whether the Hub shows a repository to everybody; False where it does not answer.

    The request carries no login. It is made once, because a wrong "no" only hides a name.
    """
    if access.is_offline:
        return False
    headers = utils.build_hf_headers(token=False, library_name="ggufspec")
    url = f"{access.endpoint}/api/models/{repo}"
    try:
        told = hosts.within(lambda: read_json(url, headers, _Repository, {"blobs": 1}), hosts.ANSWER_S)
    except (*failures(), errors.GgufspecError, ValueError, AttributeError, TypeError):
        return False
    return not told.private


def get(
    address: str,
    answer: type[T],
    subject: Subject,
    access: Access,
    query: Mapping[str, str | int | list[str]] | None = None,
) -> T:
    """Return what the Hub's API answers, as ``read_json`` and ``call`` do.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    url = f"{access.endpoint}/api/{address}"
    headers = access.headers()
    return call(lambda: read_json(url, headers, answer, query), subject, access, hosts.ANSWER_S)


def call(action: Callable[[], T], subject: Subject, access: Access, answer_s: float | None = None) -> T:
    """Do ``action``; try again while the Hub is busy, wait as long as it asks, and translate what remains.

    Args:
        action: asks the Hub.
        subject: what it is about.
        access: how the Hub may be asked.
        answer_s: how long a complete answer may take; None for the library's own limits, where files may be
            large and take long.
    """
    limited = action if answer_s is None else partial(hosts.within, action, answer_s)
    attempt = 1
    while True:
        try:
            return _read_answer(limited, access)
        except failures() as error:
            pause = pause_before_retry(error, attempt)
            if pause is None:
                raise translate_error(error, subject, access) from error
        time.sleep(pause)
        attempt += 1


def _read_answer(action: Callable[[], T], access: Access) -> T:
    """Do ``action``, which reads an answer; one that is not the Hub's must not end in a library's error.

    Raises:
        BrokenAnswerError: it is not JSON, as if it had been cut off.
        HubServerError: it is JSON, but not what the Hub's API answers.
    """
    try:
        return action()
    except failures():
        raise
    except (msgspec.ValidationError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise errors.HubServerError(
            f"{access.host} answers with something that is not the Hub's API", "is HF_ENDPOINT a Hub?"
        ) from error
    except ValueError as error:
        raise BrokenAnswerError("an answer that is not complete JSON") from error


def pause_before_retry(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, or None if there should be none.

    A busy Hub says how long (Retry-After, or its rate-limit headers); else 1, 2, 4, 8 s. Broken connections
    are tried again like a busy Hub; what cannot even be connected to, only once.
    """
    from huggingface_hub import errors as hub_errors

    if attempt >= ATTEMPTS or getattr(error, "errno", None) in _NO_ROOM:
        return None
    backoff = FIRST_PAUSE_S * min(2.0 ** (attempt - 1), 8.0)
    if isinstance(error, hub_errors.HfHubHTTPError):
        if error.response.status_code not in _BUSY:
            return None
        wait_s = _requested_wait_s(error)
        if wait_s is None:
            return backoff
        return wait_s if wait_s <= LONGEST_WAIT_S else None
    if isinstance(error, (NoConnectionError, SlowAnswerError)):
        return backoff if attempt == 1 else None
    if isinstance(error, BrokenAnswerError):
        return backoff
    if isinstance(error, hub_errors.OfflineModeIsEnabled) or not isinstance(error, failures()[1]):
        return None
    cannot_connect = "Connect" in type(error).__name__
    return None if cannot_connect and attempt > 1 else backoff


def reason(error: Exception) -> str:
    """Return an error's message in one line, without what gives access; its class if it has no message."""
    return redact((str(error).splitlines() or [type(error).__name__])[0])


def _requested_wait_s(error: hub_errors.HfHubHTTPError) -> float | None:
    headers = error.response.headers
    if headers.get("Retry-After", "").strip().isdigit():
        return float(headers["Retry-After"])
    spent = _SPENT.search(headers.get("RateLimit", ""))
    return float(spent[1]) if spent else None


def translate_error(error: Exception, subject: Subject, access: Access) -> errors.GgufspecError:
    """Return the error of ours that says what went wrong and what to do.

    Its cause is shown in tracebacks, so what gives access is removed from the messages of all causes.
    """
    from huggingface_hub import errors as hub_errors

    cause: BaseException | None = error
    while cause is not None:
        cause.args = tuple(redact(part) if isinstance(part, str) else part for part in cause.args)
        cause = cause.__cause__ or cause.__context__
    repo, page = subject.page, f"{access.site}/{subject.page}"
    revision = subject.revision or "main"
    match error:
        case hub_errors.GatedRepoError():
            return _gated(repo, page)
        case hub_errors.RepositoryNotFoundError() | hub_errors.DisabledRepoError():
            return errors.RepositoryNotFoundError(
                f"{access.host} has no repository {repo}, or it is private",
                "check the spelling; for a private one: hf auth login, or --token",
            )
        case hub_errors.RevisionNotFoundError():
            return errors.RevisionNotFoundError(
                f"{repo} has no revision {revision}", f"its branches and tags: {page}/tree/main"
            )
        case hub_errors.EntryNotFoundError() if isinstance(error, hub_errors.HfHubHTTPError):
            return errors.RemoteFileNotFoundError(
                f"{repo} has no file {subject.filename} at {revision}", f"its files: {page}/tree/{revision}"
            )
        case hub_errors.HfHubHTTPError():
            return _by_status(error, repo, page, access)
        case hub_errors.OfflineModeIsEnabled():
            return errors.NotCachedError(
                f"{repo} was not looked up: offline", "leave out --offline and HF_HUB_OFFLINE"
            )
        case SlowAnswerError():
            said = f"answers too slowly: {reason(error)}, twice in a row"
            return errors.NetworkError(f"{access.host} {said}", _CHECK_CONNECTION)
        case BrokenAnswerError():
            said = f"does not send the requested file: {reason(error)}, {ATTEMPTS} times in a row"
            return errors.NetworkError(f"{access.host} {said}", _CHECK_CONNECTION)
        case OSError() if error.errno in _NO_ROOM:
            return errors.DiskFullError(
                f"the disk is full: {error.strerror}",
                "free some space, then run the same command: it resumes",
            )
        case OSError() if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return errors.GgufspecError(
                f"cannot write: {reason(error)}", "choose another place with --local-dir or HF_HOME"
            )
    return errors.NetworkError(
        f"{access.host} cannot be reached: {reason(error)}",
        f"check the connection and HF_ENDPOINT; downloads resume. {WITHOUT_HUB}",
    )


def _by_status(
    error: hub_errors.HfHubHTTPError, repo: str, page: str, access: Access
) -> errors.GgufspecError:
    match error.response.status_code:
        case 401:
            return errors.BadTokenError(
                f"{access.host} does not accept the access token",
                "log in again with hf auth login, or check --token and HF_TOKEN",
            )
        case 403:
            return _gated(repo, page)
        case 429:
            wait_s = _requested_wait_s(error)
            when = "later" if wait_s is None else f"in {format_duration(wait_s)}"
            return errors.RateLimitedError(
                f"{access.host} limits the number of requests: try again {when}",
                "logged-in users may send more requests: hf auth login",
            )
        case status:
            attempts = f" after {ATTEMPTS} attempts" if status in _BUSY else ""
            return errors.HubServerError(
                f"{access.host} answers {status}{attempts}",
                "try again later (https://status.huggingface.co); downloads resume",
            )


def _gated(repo: str, page: str) -> errors.GatedRepositoryError:
    return errors.GatedRepositoryError(
        f"{repo} is gated: its files need permission",
        f"accept its terms at {page}, then log in with hf auth login, or pass --token",
    )
