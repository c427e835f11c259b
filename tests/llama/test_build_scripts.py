"""scripts/bench_build.py and scripts/check_builds.py, on trees and builds that nobody has to compile."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ggufspec.llama.install import releases
from tests.support import fake_builds

SCRIPTS = Path(__file__).parents[2] / "scripts"
CMAKE = """
cmake_minimum_required(VERSION 3.19)
project(fake CXX)
option(GGML_NATIVE "as the real one" ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(llama one.cpp two.cpp)
add_executable(llama-completion main.cpp)
target_link_libraries(llama-completion llama)
"""
HELP = "-m, --model F|-p, --prompt P|-n, --n-predict N|-c, --ctx-size N|-t, --threads N|--temp N|-s, --seed S"
PROGRAM = f"""
#include <cstdio>
#include <cstring>
int one(); int two();
int main(int argc, char ** argv) {{
    if (argc > 1 && !std::strcmp(argv[1], "--version")) std::fputs("version: 1 (abcdef0)\\n", stderr);
    else if (argc > 1 && !std::strcmp(argv[1], "--help")) std::puts("{HELP.replace("|", chr(92) + "n")}");
    else std::puts("once upon a time");
    return one() + two() - 3;
}}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source of llama.cpp with three files."""
    root = tmp_path / "llama.cpp"
    for name, text in {
        "CMakeLists.txt": CMAKE,
        "include/llama.h": "",
        "one.cpp": "#include <string>\nint one() { return 1; }\n",
        "two.cpp": "#include <vector>\nint two() { return 2; }\n",
        "main.cpp": PROGRAM,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def time_variants(names: str, tree: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """Run bench_build.py on a tree, with two compilers at once."""
    words = ["--source", tree, "--variants", names, "--work", work, "--jobs", "2"]
    return subprocess.run(
        [sys.executable, SCRIPTS / "bench_build.py", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_every_variant_of_a_build_is_timed_and_writes_the_same_text(tree: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    done = time_variants("bare,unity", tree, work)
    rows = {line[:16].strip(): line for line in done.stdout.splitlines()}
    assert list(rows) == ["bare", "unity", "ggufspec build"], done.stderr
    assert all(row.endswith(" x bare  same text") for row in rows.values())
    assert rows["bare"].split()[3] == "1.000"
    assert "CMAKE_UNITY_BUILD:UNINITIALIZED=ON" in (work / "unity/CMakeCache.txt").read_text()
    assert any((work / "unity").rglob("unity_0_cxx.cxx"))


@pytest.fixture
def check_builds(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("check_builds")


def test_the_releases_are_of_every_era(check_builds: Any) -> None:
    assert len(check_builds.RELEASES) >= 8
    known = [releases.parts(release) for release in check_builds.RELEASES]
    assert (known[0], known[-1]) == (min(releases.BUILDS), max(releases.BUILDS))
    assert known == sorted(release for release in known if release is not None)
    assert {".".join(map(str, release)) for release in releases.BUILDS} >= set(check_builds.RELEASES)


def test_a_release_is_measured_with_every_engine_that_it_has_to_have(
    check_builds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    fake_builds.publish("0.3.5")
    row = check_builds.check_release("0.3.5", dict(os.environ))
    assert (row.fault, row.build_s) == ("", None)
    assert row.engines == ("binary", "binary-simple")
    assert (row.accept_rate, row.has_library) == (0.75, False)
    assert "b4295" in str(row)


def test_an_engine_that_is_missing_is_a_fault(check_builds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    fake_builds.publish("0.3.16")
    row = check_builds.check_release("0.3.16", dict(os.environ))
    assert row.engines == ("binary", "binary-simple")
    assert row.fault.startswith("inprocess: ")


def test_a_release_that_cannot_be_built_is_a_fault(
    check_builds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    row = check_builds.check_release("9.8.7", dict(os.environ))
    assert "9.8.7" in row.fault
    assert row.engines == ()
