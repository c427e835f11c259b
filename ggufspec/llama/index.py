"""The package index: find the source distribution of llama-cpp-python and bring it here, verified.

Where to look comes from the settings of pip and uv, so that mirrors and private indices just work; neither
of the two needs to be installed. Nothing is used whose SHA-256 was not announced and does not match.
"""

from __future__ import annotations

import configparser
import hashlib
import logging
import os
import re
import ssl
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ggufspec import paths
from ggufspec.errors import SourceError
from ggufspec.llama.progress import Progress, Step

if TYPE_CHECKING:
    from unearth import Link
    from unearth.fetchers import Fetcher, PyPIClient

DEFAULT_INDEX = ""  # no index is named: the one that unearth takes by itself
PACKAGE = "llama-cpp-python"
_CHUNK_BYTES = 1 << 20
_CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_NAMED_INDEX = re.compile(r"^[\w.-]+=(?=\w+:)")  # uv: "name=url"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where packages come from."""

    index_urls: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()


def settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return what the environment and pip's configuration files say; pip's variables win over its files."""
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
    return Settings(
        index_urls=() if alone else tuple(dict.fromkeys((first, *extra))),
        find_links=(*pip("find-links").split(), *environ.get("UV_FIND_LINKS", "").replace(",", " ").split()),
        trusted_hosts=(*pip("trusted-host").split(), *environ.get("UV_INSECURE_HOST", "").split()),
    )


def download(version: str, where: Settings | None = None) -> Generator[Progress, None, Path]:
    """Return the verified source distribution of one version, from our cache or from the index.

    The cache is addressed by content: the folder that holds the file is named after its SHA-256.

    Raises:
        SourceError: it is nowhere to be found, comes without a hash, or is not what its hash says.
    """
    for cached in sorted(paths.sources_dir().glob(f"*/llama_cpp_python-{version}.tar.gz")):
        if _sha256(cached) == cached.parent.name:
            return cached
        cached.unlink()  # damaged since it was verified
    where = where or settings()
    logging.getLogger("unearth").addHandler(logging.NullHandler())  # what it cannot reach, we report
    with _client(where) as client:
        link = _find(version, where, client)
        expected = (link.hash_option or {}).get("sha256", [""])[0]
        return (yield from _fetch(client, link, expected))


def _find(version: str, where: Settings, client: PyPIClient) -> Link:
    """Return the first source distribution with a hash; a dead index does not hide a living one."""
    from unearth import PackageFinder

    reasons: list[str] = []
    for url in (*where.index_urls, *where.find_links):
        is_index = url in where.index_urls
        finder = PackageFinder(
            session=cast("Fetcher", client),  # the protocol that it is meant to follow is looser in its types
            index_urls=[url] if is_index and url else (),
            find_links=() if is_index else [url],
            no_binary=[PACKAGE],
            ignore_compatibility=True,
        )
        try:
            links = [package.link for package in finder.find_matches(f"{PACKAGE}=={version}")]
        except Exception as error:  # noqa: BLE001 - the HTTP library behind unearth differs by its version
            reasons.append(f"{_redacted(url) or 'the default index'}: {error}")
            continue
        for link in links:
            if "sha256" in (link.hash_option or {}):
                return link
            reasons.append(f"{link.redacted} has no SHA-256")
    what_failed = f" ({'; '.join(reasons)})" if reasons else ""
    raise SourceError(
        f"no verifiable source of {PACKAGE} {version} was found{what_failed}",
        "check the version, the network and PIP_INDEX_URL, or give a source tree with --source PATH",
    )


def _fetch(client: PyPIClient, link: Link, expected: str) -> Generator[Progress, None, Path]:
    final = paths.sources_dir() / expected / link.filename
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = final.with_name(f".{link.filename}.{os.getpid()}")
    done = 0
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
                yield Progress(step=Step.FETCH, done=done, total=total, line=link.filename)
        _verify(aside, expected, link.redacted)
        aside.rename(final)
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{link.redacted} broke off after {done} bytes: {error}", "try again") from error
    finally:
        aside.unlink(missing_ok=True)
    return final


def _verify(path: Path, expected: str, name: str) -> None:
    if _sha256(path) != expected:
        raise SourceError(
            f"{name} is not what its SHA-256 says",
            "a proxy or mirror may have changed it; try again or use another index (PIP_INDEX_URL)",
        )


def _client(where: Settings) -> PyPIClient:
    from unearth.auth import MultiDomainBasicAuth
    from unearth.fetchers import PyPIClient

    bundle = next((Path(value) for name in _CERTIFICATES if (value := os.environ.get(name))), None)
    verify: ssl.SSLContext | bool = True
    if bundle is not None:
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
            continue  # pip itself will complain about it
    for section in ("global", "download", "install"):
        if parser.has_section(section):
            merged |= parser[section]
    return merged


def _redacted(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
