"""`ggufspec demo`: builds what is missing, measures the embedded pair, and says where the time went."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Generator
from pathlib import Path
from unittest import mock

import click
import pytest

from ggufspec.cli import measuring, steps
from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.cli.steps.measuring import offer_build
from ggufspec.llama.build import ordering
from ggufspec.llama.install import Built, installs
from ggufspec.llama.install.installs import NAMES
from ggufspec.options import BenchOptions
from ggufspec.steps import BuildProgress, BuildStep
from tests.support import fakes, shell

ALL_NAMES = {name for names in NAMES.values() for name in names}
SCRIPTS = Path(steps.__file__).parents[3] / "scripts"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every llama.cpp of this machine."""
    find = shutil.which

    def find_others(name: str, path: str | None = None) -> str | None:
        return None if name in ALL_NAMES else find(name, path=path)

    monkeypatch.setattr(shutil, "which", find_others)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Let a build give a llama.cpp that answers at once; return what was built."""
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    made: list[str] = []

    def build(request: ordering.MakeRequest) -> Generator[BuildProgress, None, Built]:
        for step in (BuildStep.FETCH, BuildStep.UNPACK, BuildStep.COMPILE):
            yield BuildProgress(step=step)
        made.append("llama.cpp")
        monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
        return mock.Mock(spec=Built, summary="llama.cpp 0.3.36 (cpu)", note=None, environment={})

    monkeypatch.setattr(ordering, "provide_build", build)
    return made


def test_a_demonstration_builds_llama_cpp_once_and_measures_the_embedded_pair(builds: list[str]) -> None:
    done = shell.done("demo", "-r", "1", "-t", "1", "--environment-s", "7", "-o", "json")
    rows = json.loads(done.stdout)
    assert [(row["role"], row["draft"], row["pair"]) for row in rows if row["role"] == "drafting"] == [
        ("drafting", 3, "demo"),
        ("drafting", 8, "demo"),
    ]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("time: environment 7.00 s, source ")
    assert all(name in last for name in ("compile ", "measure ", " in all"))
    again = shell.done("demo", "-r", "1", "-t", "1")
    assert again.stderr.splitlines()[-1].startswith("time: measure ")
    assert builds == ["llama.cpp"]


def test_the_times_add_up() -> None:
    steps_s = {"wait": 1.0, "fetch": 2.0, "unpack": 3.0, "compile": 200.0}
    line = measuring.describe_time(steps_s, environment_s=20.0, measured_s=34.0)
    assert line == (
        "time: environment 20.0 s, source 5.00 s, compile 3 min 21 s, measure 34.0 s; 4 min 20 s in all"
    )
    assert measuring.describe_time({}, environment_s=None, measured_s=5.0) == (
        "time: measure 5.00 s; 5.00 s in all"
    )


BENCH = ("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "1", "-t", "1")


def test_without_a_terminal_a_bench_names_the_commands(builds: list[str]) -> None:
    assert not installs.is_any_found()
    done = shell.here(*BENCH)
    assert (done.returncode, builds) == (3, [])
    assert "no llama.cpp was found" in done.stderr
    assert "run `ggufspec build`, or `ggufspec demo`" in done.stderr


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("agreed", [True, False])
def test_on_a_terminal_a_bench_asks(builds: list[str], monkeypatch: pytest.MonkeyPatch, agreed: bool) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return agreed

    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with click.Context(click.Command("bench"), obj=verbosity.Verbosity()):
        offer_build(BenchOptions(), Terminal())
    assert "Build it now?" in asked[0]
    assert builds == (["llama.cpp"] if agreed else [])
    with click.Context(click.Command("bench"), obj=verbosity.Verbosity(quiet=True)):
        offer_build(BenchOptions(), Terminal())
    assert len(asked) == 1


@pytest.mark.usefixtures("llama")
def test_a_llama_cpp_that_is_here_is_not_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal())
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setattr(click, "confirm", mock.Mock(side_effect=AssertionError("asked")))
    with click.Context(click.Command("bench"), obj=verbosity.Verbosity()):
        offer_build(BenchOptions(), Terminal())


def test_the_script_leaves_building_and_timing_to_the_command() -> None:
    text = (SCRIPTS / "demo").read_text()
    assert "scripts/setup --no-build" in text
    assert 'ggufspec demo --environment-s $((SECONDS - started)) "$@"' in text
    setup = (SCRIPTS / "setup").read_text()
    assert setup.index("--no-build ]] && exit") < setup.index('"$venv/bin/ggufspec" build')
