"""git, run so that neither an address nor a reference can become an option, a command or a leaked password.

Credentials in an address are taken out of it at the edge. git asks for them through a credential helper that
reads them from its environment: they are in no argument, no configuration file, no log and no result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from ggufspec import paths, proc
from ggufspec.errors import SourceError
from ggufspec.redaction import PROXIES, is_secret, redact, without_credentials
from ggufspec.steps import BuildProgress, BuildStep, relay

SCHEMES = ("https", "http", "ssh", "git", "file")
"""What an address may begin with. Others, such as ``ext::``, let git run a command that the address names."""

_WITH_LOGIN = ("https", "http")
_OTHER_REPOSITORY = (  # set inside of git's hooks; they name a repository that is not ours
    "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES "
    "GIT_COMMON_DIR GIT_NAMESPACE GIT_PREFIX"
)
_USER, _PASSWORD = "GGUFSPEC_GIT_USER", "GGUFSPEC_GIT_PASSWORD"  # names of variables
_HELPER = (
    f"""!f() {{ test "$1" != get || printf 'username=%s\\npassword=%s\\n' "${_USER}" "${_PASSWORD}"; }}; f"""
)
_PLACE = re.compile(r"(?:\[[0-9a-f:.]+\]|\w[\w.-]*)(?::\d*)?", re.IGNORECASE)  # host and port
_USER_NAME = re.compile(r"\w[\w.+-]*")
_BY_SSH = re.compile(r"(?:\w[\w.+-]*@)?\w[\w.-]*:(?![:-])[^\s:]+")  # git@host:path
_NOT_IN_REF = re.compile(r"[\s\x00-\x1f\x7f~^:?*\[\\]|\.\.|@\{")
_NOT_IN_URL = re.compile(r"[\s\x00-\x1f\x7f]")


@dataclass(frozen=True, kw_only=True)
class Login:
    """Credentials for the host of an address; never shown."""

    user: str = field(repr=False)
    password: str = field(repr=False)


def read_address(text: str) -> tuple[str, Login | None]:
    """Return an address without credentials, and the credentials that it held.

    Args:
        text: a URL, ``user@host:path``, or a folder on this machine.

    Raises:
        SourceError: the address is none of these, or its kind of address takes no password.
    """
    folder = paths.expanded(text, "source") if text else None
    if folder is not None and folder.is_dir():
        return str(folder), None
    parts = urlsplit("" if _NOT_IN_URL.search(text) else text)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at or parts.scheme not in _WITH_LOGIN:
        check_address(text)
        return text, None
    url = urlunsplit(parts._replace(netloc=host))
    check_address(url)
    user, _, password = userinfo.partition(":")
    return url, Login(user=unquote(user), password=unquote(password))


def check_address(url: str) -> None:
    """Refuse what is not the address of a repository, holds credentials, or would make git run a command.

    Raises:
        SourceError: what is wrong with it.
    """
    if "://" not in url:
        if not Path(url).is_absolute() and not _BY_SSH.fullmatch(url):
            raise _bad_address(url)
        return
    parts = urlsplit("" if _NOT_IN_URL.search(url) else url)
    userinfo, _, host = parts.netloc.rpartition("@")
    if parts.scheme not in SCHEMES or not (_PLACE.fullmatch(host) or (parts.scheme == "file" and not host)):
        raise _bad_address(url)
    if userinfo and (parts.scheme != "ssh" or not _USER_NAME.fullmatch(userinfo)):
        raise SourceError(
            f"git takes no credentials in {without_credentials(url)}",
            "write them as in git+https://USER:TOKEN@HOST/PATH, or use an SSH key: git+ssh://USER@HOST/PATH",
        )


def check_ref(ref: str) -> None:
    """Refuse what cannot be the name of a branch, tag or commit; git would take some of it for options.

    Raises:
        SourceError: the name is not one.
    """
    if not ref or ref.startswith(("-", "/")) or ref.endswith(("/", ".", ".lock")) or _NOT_IN_REF.search(ref):
        raise SourceError(
            f"{ref!r} is not the name of a branch, tag or commit",
            "name one, for example --source git --version b4159",
        )


def ask(*words: str, url: str | None = None, login: Login | None = None) -> str:
    """Return the first word that git answers.

    Args:
        words: git's arguments.
        url: the repository that ``login`` is for.
        login: credentials, if it needs any.

    Raises:
        SourceError: git is missing, fails, or answers nothing.
    """
    return _answer(words, url, login).split()[0]


def commits_between(folder: Path, first: str, last: str) -> tuple[str, ...]:
    """Return the commits of a repository on this machine from the first to the last, both included.

    Of merges, only the first parent is followed: each commit is one that the branch itself had.

    Raises:
        SourceError: git fails, a name is not known there, or the first is no ancestor of the last.
    """
    for ref in (first, last):
        check_ref(ref)
    start, end = (
        ask("-C", str(folder), "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        for ref in (first, last)
    )
    if start == end or not succeeds("-C", str(folder), "merge-base", "--is-ancestor", start, end):
        raise SourceError(
            f"{first} is not an earlier commit than {last} in {folder}", "give the older one first"
        )
    words = ("-C", str(folder), "rev-list", "--first-parent", "--reverse", f"{start}..{end}")
    return (start, *_answer(words).split())


def _answer(words: tuple[str, ...], url: str | None = None, login: Login | None = None) -> str:
    completed, out, err = proc.capture(_argv(words, url, login), env=environment(login))
    if completed.returncode != 0 or not out.strip():
        reason = redact(err.strip()) or f"no answer to {' '.join(words)}"
        raise SourceError(f"git failed: {reason}", "check that git is installed, the address and the tag")
    return out


def succeeds(*words: str) -> bool:
    """Return whether git ends with 0; for commands on this machine alone."""
    return proc.capture(_argv(words, None, None), env=environment())[0].returncode == 0


def fetch(
    *words: str, log: Path, url: str, login: Login | None = None
) -> Generator[BuildProgress, None, None]:
    """Run a command that may take long, and yield what git prints.

    Raises:
        SourceError: git is missing or fails.
    """
    completed = yield from relay(
        proc.stream(_argv(words, url, login), log=log, env=environment(login)),
        lambda line: BuildProgress(step=BuildStep.FETCH, line=redact(line)),
    )
    if completed.returncode != 0:
        last = next(filter(None, reversed(completed.tail)), "")
        raise SourceError(f"git failed: {redact(last)}", f"check {url}, and the branch, tag or commit")


def environment(login: Login | None = None, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return git's environment: what the user set for git and for proxies, and no other secret."""
    inherited = os.environ if environ is None else environ
    kept = {
        name: value
        for name, value in inherited.items()
        if name not in _OTHER_REPOSITORY.split()
        and (name.startswith("GIT_") or name.lower() in PROXIES or not is_secret(name, value))
    }
    changed = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES)}
    if login is not None:
        changed |= {_USER: login.user, _PASSWORD: login.password}
    return kept | changed


def _argv(words: tuple[str, ...], url: str | None, login: Login | None) -> tuple[str, ...]:
    if url is None or login is None:
        return ("git", *words)
    parts = urlsplit(url)
    key = f"credential.{parts.scheme}://{parts.netloc}.helper"
    # the empty one makes git forget the user's helpers, which would store these credentials
    return ("git", "-c", f"{key}=", "-c", f"{key}={_HELPER}", *words)


def _bad_address(url: str) -> SourceError:
    shown = without_credentials(url) if "://" in url else re.sub(r"^.*@", "***@", url)
    return SourceError(
        f"{shown!r} is not the address of a git repository",
        f"write git+https://HOST/PATH, git+user@HOST:PATH or git+FOLDER; schemes: {', '.join(SCHEMES)}",
    )
