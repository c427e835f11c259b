"""Our own builds, where they are and moved elsewhere, on the embedded pair."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.llama.build import building, prebuilt, recipes
from ggufspec.llama.install import store
from ggufspec.llama.install.installs import Install
from ggufspec.llama.install.store import Built
from tests.support import shell
from tests.support.release_server import serve_releases

CACHE = paths.cache_dir()  # the user's: each test gets a home of its own later
BUILT = [built for built in store.installed() if built.backend == "cpu"]
BINDING = metadata.version("llama-cpp-python")

if not BUILT:
    pytest.skip("no llama.cpp is built: run `ggufspec build`", allow_module_level=True)


@pytest.fixture(params=BUILT, ids=lambda built: built.path.name)
def built(request: pytest.FixtureRequest) -> Built:
    """Every build in turn."""
    found: Built = request.param
    return found


def test_a_build_runs_where_it_was_moved_to(built: Built, tmp_path: Path) -> None:
    moved = shutil.copytree(built.bin, tmp_path / "moved", symlinks=True)
    scratch, log = tmp_path / "scratch", tmp_path / "log"
    scratch.mkdir()
    (plain,) = set(recipes.PROGRAMS[0]) & set(built.programs)
    assert building.check_build(moved, plain=plain, gpu=False, scratch=scratch, log=log) is None
    assert "speculative" in log.read_text()


def test_a_build_has_what_a_bench_needs(built: Built) -> None:
    names = {name.removeprefix("llama-") for name in built.programs}
    assert {"speculative", "server", "bench", "batched-bench", "quantize", "tokenize"} <= names


def test_what_is_built_is_not_built_again() -> None:
    places = {f"{built.bin}\n" for built in BUILT if built.version == BINDING}
    if not places:
        pytest.skip(f"llama.cpp of the installed binding ({BINDING}) is not built")
    words = [sys.executable, "-m", "ggufspec", "build", "--backend", "cpu"]
    environment = os.environ | {"GGUFSPEC_CACHE": str(CACHE)}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout in places
    assert result.stderr == f"already built: llama.cpp {BINDING} (cpu)\n"


# An archive as upstream packs it, of real programs: fetched, tested, and measured with its server


def test_an_official_archive_drafts(llama: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libc, version = platform.libc_ver()
    if (sys.platform, platform.machine(), libc) != ("linux", "x86_64", "glibc") or version < "2.35":
        pytest.skip("official archives of CPU programs are for x86-64 with glibc 2.35 and newer")
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "cache"))
    with serve_releases(tmp_path / "archives") as releases:
        monkeypatch.setenv(prebuilt.ADDRESS, f"{releases.url}/releases")
        left_out = ("llama-speculative", "llama-tokenize")  # examples are not part of archives
        files = [path for path in llama.root.iterdir() if not path.name.startswith(left_out)]
        releases.add("b11312", "ubuntu-x64", files)
        fetched = shell.here("build", "--prebuilt", "--backend", "cpu")
    assert fetched.returncode == 0, fetched.stderr
    asked = ("--pair", "demo", "--draft", "3", "-n", "16", "-r", "1", "--warmup", "0", "-t", "1")
    done = shell.done("bench", *asked, "--per-category", "1", "-o", "json")
    assert "engine: server, because the llama.cpp in" in done.stderr
    (drafting,) = (row for row in json.loads(done.stdout) if row["role"] == "drafting")
    assert drafting["text_identical"]
    assert drafting["accept_rate"] > 0.3  # the embedded pair accepts more than half of three
