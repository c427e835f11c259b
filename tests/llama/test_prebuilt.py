"""Official archives: which one is chosen, what is refused, and what was fetched is a build like others."""

from __future__ import annotations

import platform
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ggufspec import hosts
from ggufspec.choices import Backend
from ggufspec.errors import BuildError, GgufspecError, SourceError
from ggufspec.llama import cuda
from ggufspec.llama.build import prebuilt
from ggufspec.llama.build.ordering import provide_build
from ggufspec.llama.build.prebuilt import PrebuiltRequest
from ggufspec.llama.cuda import Driver
from ggufspec.llama.install.releases import build_number
from ggufspec.llama.install.store import Built
from ggufspec.steps import finish
from tests.support import fakes, shell
from tests.support.release_server import Releases, serve_releases

TAG = "b11434"


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    """A release with a CPU archive for Linux, on a machine that it fits."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.39"))
    with serve_releases(tmp_path / "archives") as served:
        monkeypatch.setenv(prebuilt.ADDRESS, f"{served.url}/releases/")
        served.add(TAG, "ubuntu-x64", programs(tmp_path / "bin"))
        yield served


def programs(folder: Path, plain: str = fakes.PLAIN) -> list[Path]:
    fakes.program(folder / "llama-completion", plain)
    fakes.program(folder / "llama-server", fakes.PLAIN, help_from="llama-server")
    (folder / "rpc-server").touch()
    (folder / "LICENSE").write_text("MIT")
    return sorted(folder.iterdir())


def fetch(request: PrebuiltRequest) -> Built:
    return finish(provide_build(request))


def test_the_newest_release_becomes_a_build_that_is_used_again(releases: Releases) -> None:
    built = fetch(PrebuiltRequest(backend=Backend.CPU))
    assert (built.version, built.backend, built.has_rpc, built.commit) == (TAG, "cpu", True, None)
    assert built.programs == ("LICENSE", "llama-completion", "llama-server", "rpc-server")
    assert built.command == f"ggufspec build --prebuilt --version {TAG} --backend cpu"
    assert releases.asked == ["/releases/latest", f"/download/llama-{TAG}-bin-ubuntu-x64.tar.gz"]
    releases.asked.clear()
    done = shell.done("build", "--prebuilt", "--backend", "cpu", "--version", TAG)
    assert done.stdout == f"{built.bin}\n"
    assert releases.asked == []
    listed = shell.done("build", "--list").stdout
    assert f"{TAG} (abc1234)  cpu  (own build)" in listed
    assert "can: plain, server, rpc" in listed


@pytest.mark.parametrize(
    ("supports", "archive"), [((12, 9), "12.8"), ((13, 0), "12.8"), ((13, 4), "13.4"), ((14, 0), "13.4")]
)
def test_cuda_is_the_newest_that_the_driver_runs_with_its_libraries(
    releases: Releases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    supports: tuple[int, int],
    archive: str,
) -> None:
    monkeypatch.setattr(cuda, "find_driver", lambda: Driver(version="1", supports=supports))
    for label in ("12.8", "13.4"):
        made = releases.add(TAG, f"ubuntu-cuda-{label}-x64", ())
        libraries = made.with_name(f"cudart-{made.name}")
        libraries.write_bytes(made.read_bytes())
        releases.archives[TAG].append(libraries)
    release = PrebuiltRequest(backend=Backend.CUDA, wanted=TAG)._release
    chosen = prebuilt.choose(release, Backend.CUDA)
    name = f"llama-{TAG}-bin-ubuntu-cuda-{archive}-x64.tar.gz"
    assert [file.name for file in chosen] == [name, f"cudart-{name}"]


def refuse(**changes: Any) -> str:
    request = PrebuiltRequest(**{"backend": Backend.CPU, "wanted": TAG} | changes)
    with pytest.raises(GgufspecError) as caught:
        fetch(request)
    assert caught.value.hint
    return caught.value.message


def test_what_fits_nowhere_is_refused_by_name(releases: Releases, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "find_driver", lambda: None)
    assert refuse(backend=Backend.CUDA) == "no NVIDIA driver was found"
    old = Driver(version="1", supports=(11, 8))
    monkeypatch.setattr(cuda, "find_driver", lambda: old)
    releases.add(TAG, "ubuntu-cuda-12.8-x64", ())
    assert refuse(backend=Backend.CUDA) == f"{old} is older than each archive of {TAG} needs"
    assert refuse(backend=Backend.METAL) == "llama.cpp publishes no archive for linux with metal"
    assert refuse(backend=Backend.VULKAN) == f"the release {TAG} has no archive for x64 with vulkan"
    assert refuse(wanted="b1") == f"there is no release b1 at {releases.url}/releases/tags/b1"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    assert refuse() == "the official archives need glibc 2.35, and here is glibc 2.31"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert refuse() == "the official archives need glibc 2.35, and here is another C library"


def test_a_version_that_is_no_release_is_refused() -> None:
    with pytest.raises(SourceError, match=r"'0\.3\.36' is no release of llama\.cpp"):
        PrebuiltRequest(backend=Backend.CPU, wanted="0.3.36")


def test_nothing_that_differs_from_its_sha_256_is_kept(releases: Releases, tmp_path: Path) -> None:
    releases.alter = lambda path, content: content[:-1] + b"x" if path.startswith("/download") else content
    assert refuse().endswith("is not the one that its release lists")
    releases.alter = lambda path, content: content.replace(b"sha256:", b"md5:")
    assert refuse() == f"the release {TAG} has no archive for x64 with cpu"
    releases.alter = lambda path, content: b"{}"
    assert refuse().endswith("does not describe a release of llama.cpp")
    assert not list((tmp_path / "home").rglob("llama-completion"))


def test_a_host_that_says_nothing_is_not_waited_for(
    releases: Releases, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv(prebuilt.ADDRESS, address)
        monkeypatch.setattr(hosts, "SILENT_S", 0.2)
        assert refuse() == f"{address}/tags/{TAG} did not begin: nothing for 0.20 s"
        monkeypatch.setattr(hosts, "CONNECT_S", 0.1)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait())  # no answer for the name
        assert refuse() == f"{address}/tags/{TAG} did not begin: no connection within 0.10 s"
    ended.set()


def test_programs_that_do_not_run_here_are_no_build(releases: Releases, tmp_path: Path) -> None:
    releases.add("b11500", "ubuntu-x64", programs(tmp_path / "crashing", "kill -ILL $$\n"))
    with pytest.raises(BuildError, match="the programs of b11500 crash here with SIGILL"):
        fetch(PrebuiltRequest(backend=Backend.CPU))


def test_options_for_compiling_are_refused(releases: Releases) -> None:
    done = shell.here("build", "--prebuilt", "--jobs", "2")
    assert done.returncode == 2
    assert "--jobs is for compiling, and --prebuilt compiles nothing" in done.stderr
    assert not releases.asked


# Which release a build is


@pytest.mark.parametrize(
    ("release", "number"),
    [
        *(("0.2.63", 2699), ("0.2.64", 2699), ("0.3.16", 6170), ("0.3.19", 8475), ("0.3.36", 11312)),
        ("b4159", 4159),
        # what follows today's rules
        *((release, None) for release in ("0.3.37", "1.0.0", "local-tree", "deadbeef", "0.3", "bad")),
    ],
)
def test_the_build_number_of_a_release(release: str, number: int | None) -> None:
    assert build_number(release) == number
