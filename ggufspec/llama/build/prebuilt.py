"""An official archive of llama.cpp in place of a build: chosen for this machine, verified, tested and kept.

GitHub lists the archives of each release with their SHA-256. Their names, and the Ubuntu that each was linked
on, are those of llama.cpp's .github/workflows/release.yml (b11434). No archive has ``llama-speculative``:
they draft with their server.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from ggufspec import digests, hosts
from ggufspec.choices import Backend
from ggufspec.errors import BuildError, SourceError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain
from ggufspec.llama.build.building import Made, check_build
from ggufspec.llama.install import contents, store
from ggufspec.llama.source.sources import unpack_archive
from ggufspec.redaction import redact
from ggufspec.steps import BuildProgress, BuildStep

ADDRESS = "GGUFSPEC_RELEASES"
"""Names a mirror of GitHub's list of releases."""

_GITHUB = "https://api.github.com/repos/ggml-org/llama.cpp/releases"
_TAG = re.compile(r"b\d+")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAMES: Mapping[tuple[str, Backend], str] = {
    ("linux", Backend.CPU): r"ubuntu-{arch}",
    ("linux", Backend.VULKAN): r"ubuntu-vulkan-{arch}",
    ("linux", Backend.CUDA): r"ubuntu-cuda-(?P<release>\d+\.\d+)-{arch}",
    ("linux", Backend.HIP): r"ubuntu-rocm-(?P<release>\d+\.\d+)-{arch}",
    ("darwin", Backend.METAL): r"macos-{arch}",
    ("darwin", Backend.CPU): r"macos-{arch}",
}
"""What follows ``llama-TAG-bin-`` in the name of an archive."""

_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_OLD_UBUNTU = {("x64", Backend.CPU), ("x64", Backend.VULKAN)}  # linked on 22.04, the others on 24.04
_GLIBC = {True: (2, 35), False: (2, 39)}  # of 22.04, of 24.04
_PLAIN = "llama-completion"
_WORKER = "rpc-server"
_MOST_ANSWER_BYTES = 16 << 20  # a release has some 40 archives, 2 kB each
_MOST_ARCHIVE_BYTES = 4 << 30  # CUDA's libraries are the largest, with 0.6 GB
_CHUNK_BYTES = 1 << 20
_COMPILE = "`ggufspec build` compiles it for this machine"
_AGAIN = "try again; a mirror is named by GGUFSPEC_RELEASES"


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a release, as GitHub describes it; ``digest`` is None where it lists none."""

    name: str
    url: str = msgspec.field(name="browser_download_url")
    digest: str | None = None
    size_bytes: int = msgspec.field(name="size")


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """A release, as GitHub describes it."""

    tag: Annotated[str, msgspec.Meta(pattern=rf"^{_TAG.pattern}\Z")] = msgspec.field(name="tag_name")
    archives: tuple[Archive, ...] = msgspec.field(name="assets", default=())


@dataclass(frozen=True, kw_only=True)
class PrebuiltRequest:
    """Which release to fetch, and for which backend; without a tag, the newest."""

    backend: Backend
    wanted: str | None = None
    added: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no release.

        Raises:
            SourceError: such as a version of llama-cpp-python.
        """
        if self.wanted is not None and not _TAG.fullmatch(self.wanted):
            raise SourceError(f"{self.wanted!r} is no release of llama.cpp", "name one, such as b11434")

    @cached_property
    def tag(self) -> str:
        """The name of the release; asks for the newest if none was named."""
        return self.wanted or self._release.tag

    @property
    def origin(self) -> str:
        """What a build is described by."""
        return f"release {self.tag}"

    def key(self) -> str:
        """Return the name of its folder."""
        return store.key(self.tag, self.backend.value, ("release archive", self.tag, self.backend.value))

    def make(self, work: Path, log: Path) -> Generator[BuildProgress, None, Made]:
        """Download, unpack and test what the release has for this machine.

        Args:
            work: an empty folder; programs and libraries are put into ``final/bin``.
            log: the output of the programs is appended.

        Raises:
            SourceError: there is nothing for this machine, or it cannot be downloaded or is damaged.
            BuildError: its programs do not run here.
        """
        into = work / "final" / "bin"
        into.mkdir(parents=True)
        for archive in choose(self._release, self.backend):
            file = work / archive.name
            yield from _download(archive, file)
            yield BuildProgress(step=BuildStep.UNPACK, line=archive.name)
            _unpack(file, into)
        if not (into / _PLAIN).is_file():
            raise SourceError(f"the archive of {self.tag} has no {_PLAIN}", _COMPILE)
        yield BuildProgress(step=BuildStep.TEST, line="running the embedded pair")
        gpu = self.backend is not Backend.CPU
        signal = check_build(into, plain=_PLAIN, gpu=gpu, scratch=work / "scratch", log=log)
        if signal is not None:
            raise BuildError(
                f"the programs of {self.tag} crash here with {signal}; the log is {log}", _COMPILE
            )
        has_worker = any(path.name.endswith(_WORKER) for path in into.iterdir())
        return Made(version=self.tag, options=("GGML_RPC=ON",) if has_worker else ())

    @cached_property
    def _release(self) -> Release:
        """What GitHub says of the release."""
        address = (os.environ.get(ADDRESS) or _GITHUB).rstrip("/")
        where = f"{address}/{f'tags/{self.wanted}' if self.wanted else 'latest'}"
        answer = b"".join(_read(where, _MOST_ANSWER_BYTES, f"release {self.wanted or ''}".rstrip()))
        try:
            return msgspec.json.decode(answer, type=Release)
        except ValueError as error:  # msgspec's errors are ValueErrors
            raise SourceError(f"{redact(where)} does not describe a release of llama.cpp", _AGAIN) from error


def choose_backend() -> tuple[Backend, str]:
    """Return the backend of the archive that fits this machine, and why."""
    if sys.platform == "darwin":
        return Backend.METAL, "Metal, because this is a Mac"
    gpus = toolchain.nvidia()
    if gpus is not None:
        return Backend.CUDA, f"CUDA, because {gpus} was found"
    return Backend.CPU, "CPU, because no NVIDIA driver was found; --backend vulkan or hip names another one"


def choose(release: Release, backend: Backend) -> tuple[Archive, ...]:
    """Return the archives of a release for this machine: one, for CUDA also that of CUDA's libraries.

    Those without a SHA-256 are left out.

    Raises:
        SourceError: the release has none for this system, this C library or this driver.
    """
    tag, arch = release.tag, _ARCHITECTURES.get(platform.machine().lower(), platform.machine())
    pattern = _NAMES.get((sys.platform, backend))
    if pattern is None:
        raise SourceError(f"llama.cpp publishes no archive for {sys.platform} with {backend.value}", _COMPILE)
    if sys.platform == "linux":
        _check_glibc(arch, backend)
    named = re.compile(rf"llama-{tag}-bin-{pattern.format(arch=re.escape(arch))}\.tar\.gz")
    verifiable = (archive for archive in release.archives if _DIGEST.fullmatch(archive.digest or ""))
    archives = {archive.name: archive for archive in verifiable}
    found = {name: match for name in archives if (match := named.fullmatch(name))}
    fitting = sorted((_release_of(match), name) for name, match in found.items())
    if backend is Backend.CUDA:
        driver = cuda.find_driver()
        if driver is None:
            raise SourceError("no NVIDIA driver was found", "install it, or use --backend cpu")
        fitting = [entry for entry in fitting if entry[0] <= driver.supports]
        if found and not fitting:
            raise SourceError(f"{driver} is older than each archive of {tag} needs", f"update it; {_COMPILE}")
    if not fitting:
        raise SourceError(f"the release {tag} has no archive for {arch} with {backend.value}", _COMPILE)
    _, name = fitting[-1]
    libraries = archives.get(f"cudart-{name}") if backend is Backend.CUDA else None
    return (archives[name], *((libraries,) if libraries else ()))


def _release_of(match: re.Match[str]) -> tuple[int, ...]:
    """Return the version of CUDA or ROCm in a name; nothing for other backends."""
    text = match.groupdict().get("release")
    return tuple(map(int, text.split("."))) if text else ()


def _check_glibc(arch: str, backend: Backend) -> None:
    name, version = platform.libc_ver()
    needed = _GLIBC[(arch, backend) in _OLD_UBUNTU]
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < needed:
        here = f"{name} {version}".strip() if name else "another C library"
        raise SourceError(
            f"the official archives need glibc {'.'.join(map(str, needed))}, and here is {here}", _COMPILE
        )


def _download(archive: Archive, file: Path) -> Generator[BuildProgress, None, None]:
    """Download an archive, and check its SHA-256."""
    done = 0
    with file.open("wb") as stream:
        for chunk in _read(archive.url, _MOST_ARCHIVE_BYTES, archive.name):
            stream.write(chunk)
            done += len(chunk)
            yield BuildProgress(step=BuildStep.FETCH, done=done, total=archive.size_bytes, line=archive.name)
    if f"sha256:{digests.of_file(file).sha256}" != archive.digest:
        raise SourceError(f"the SHA-256 of {archive.name} is not the one that its release lists", _AGAIN)


def _read(url: str, most_bytes: int, name: str) -> Iterator[bytes]:
    """Yield what an address answers.

    Raises:
        SourceError: it does not answer, or with more than it should.
    """
    import httpx2  # slow to import

    done = 0
    hooks = {"request": [hosts.watch]}
    client = httpx2.Client(follow_redirects=True, timeout=hosts.SILENT_S, event_hooks=hooks)

    def ask() -> httpx2.Response:
        return client.send(client.build_request("GET", url), stream=True)

    try:
        with closing(client), closing(hosts.within(ask, hosts.ANSWER_S)) as response:
            if response.status_code == httpx2.codes.NOT_FOUND:
                hint = f"name another one with --version; {_AGAIN}"
                raise SourceError(f"there is no {name} at {redact(url)}", hint)
            response.raise_for_status()
            for chunk in response.iter_raw(_CHUNK_BYTES):
                done += len(chunk)
                if done > most_bytes:
                    raise SourceError(f"{name} is larger than it can be", _AGAIN)
                yield chunk
    except (httpx2.HTTPError, ConnectionError) as error:
        ended = f"ended after {done} bytes" if done else "did not begin"
        raise SourceError(f"{redact(url)} {ended}: {redact(str(error))}", _AGAIN) from error


def _unpack(archive: Path, into: Path) -> None:
    """Put the files of an archive's only folder into another one."""
    aside = archive.with_suffix(".unpacked")
    unpack_archive(archive, aside)
    for folder in aside.iterdir():
        for path in folder.iterdir() if folder.is_dir() else (folder,):
            path.replace(into / path.name)
    contents.sync(into)
    shutil.rmtree(aside)
