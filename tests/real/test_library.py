"""The real library, copied to where this ggufspec did not build it, and layouts that do not fit it."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, paths, tuning
from ggufspec.domain import Role
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library import selftest
from ggufspec.engines.library.llama_h import NEEDED
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import find_library, installs, releases
from ggufspec.llama.install.installs import Install
from ggufspec.options import TuneOptions
from tests.support import embedded

ARCHIVES = sorted(paths.cache_dir().glob("sources/*/llama_cpp_python-*.tar.gz"))  # tests have their own
HIDDEN = {"no_host", "no_alloc", "load_mtp", "kv_unified"}
"""False like what would take their places, a boolean or padding: only the commit can tell."""

WITHOUT_A_FIELD = """
import ctypes, json, sys
from dataclasses import replace
from ggufspec.engines.library.llama_h import find_difference, find_layout
functions = ctypes.CDLL(sys.argv[1])
layout = find_layout(functions)
unnoticed = []
for name, struct in (("model", layout.model), ("context", layout.context)):
    for field, _ in struct._fields_:
        fields = [item for item in struct._fields_ if item[0] != field]
        other = type(struct.__name__, (ctypes.Structure,), {"_fields_": fields})
        defaults = {**layout.defaults, other: layout.defaults[struct]}
        if find_difference(functions, replace(layout, **{name: other}, defaults=defaults)) is None:
            unnoticed.append(field)
print(json.dumps(unnoticed))
"""


EXPECTS_ANOTHER_TEXT = """
import sys
from pathlib import Path
from ggufspec.engines.library import selftest
selftest._ANSWER = " in the garden"
for line in selftest.check(Path(sys.argv[1])):
    print(line)
"""

CRASHES_IN_BATCHES = """
import os, sys
from pathlib import Path
from ggufspec.engines.library import selftest
selftest.Model.forget = lambda *_: os.abort()
for line in selftest.check(Path(sys.argv[1])):
    print(line, flush=True)
"""

FEEDS_NOTHING = """
import sys
from pathlib import Path
from ggufspec.engines.library import heads, selftest
read = heads._rows
heads._rows = lambda address, count, width: read(address, count, width) * (width > 1000)  # the logits' width
for line in selftest.check(Path(sys.argv[1])):
    print(line)
"""
"""As a library whose functions for states are there, and return zeros."""


@pytest.fixture
def copied(llama: Install, tmp_path: Path) -> Install:
    """The programs and libraries of today's build in another folder, without its manifest."""
    folder = shutil.copytree(llama.root, tmp_path / "my llama.cpp" / "bin", symlinks=True)
    return installs.find_install(folder)


def test_a_complete_llama_that_we_did_not_build_can_be_measured_with(copied: Install, tmp_path: Path) -> None:
    assert (copied.release, copied.library) == (None, copied.root)
    with InprocessEngine(install=copied, timeout_s=120) as engine:
        embedded.measured(engine, embedded.spec(Role.DRAFTING), tmp_path / "log")


def test_a_complete_llama_that_we_did_not_build_can_be_tuned(copied: Install) -> None:
    plan = tuning.prepare_tuning(TuneOptions(pair="demo", llama=copied.root))
    assert plan.session.install.root == copied.root


def test_a_library_is_taken_whatever_its_programs_report(copied: Install) -> None:
    for version in (None, "0.5.0-dev", "b11434", "0.3.99"):
        engines.check_library(replace(copied, version=version, build_number=None, commit=None))


@pytest.fixture
def tested_by(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Let another program test libraries, whatever is known of them."""

    def use(program: str) -> None:
        monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(selftest, "PROGRAM", (sys.executable, "-c", program))

    return use


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (EXPECTS_ANOTHER_TEXT, "the embedded model writes"),
        (CRASHES_IN_BATCHES, "its test ended with SIGABRT while evaluating a batch"),
    ],
)
def test_a_library_that_computes_something_else_is_refused(
    copied: Install, tested_by: Callable[[str], None], program: str, problem: str
) -> None:
    tested_by(program)
    with pytest.raises(NoInstallError, match=problem):
        engines.check_library(copied)


def test_heads_that_a_library_feeds_are_forecast(copied: Install, tested_by: Callable[[str], None]) -> None:
    assert engines.check_library(copied).heads == {*selftest._HEADS}
    selftest._examine.cache_clear()
    tested_by(FEEDS_NOTHING)
    assert engines.check_library(copied).heads == frozenset()


def test_an_older_llama_is_refused_by_name(legacy: Install, tmp_path: Path) -> None:
    folder = shutil.copytree(legacy.root, tmp_path / "legacy", symlinks=True)
    with pytest.raises(NoInstallError, match="it lacks llama_") as caught:
        engines.check_library(installs.find_install(folder))
    assert "--engine server" in str(caught.value.hint)


def test_a_layout_that_lacks_any_field_does_not_fit(copied: Install) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the size of a struct is seen on x86-64 only")
    words = [sys.executable, "-c", WITHOUT_A_FIELD, str(find_library(copied.root))]
    unnoticed = json.loads(subprocess.check_output(words, text=True))
    assert set(unnoticed) == HIDDEN


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_the_oldest_library_is_that_of_the_first_release_with_all_that_every_run_calls(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = ("llama.cpp/include/llama.h", "llama.cpp/llama.h")
        header = tar.extractfile(next(member for member in tar if member.name.endswith(names)))
        declared = set(re.findall(r"\b(llama_\w+)\s*\(", header.read().decode()))
    release = archive.name.removeprefix("llama_cpp_python-").removesuffix(".tar.gz")
    assert ({*NEEDED} <= declared) == releases.has_library(release)
