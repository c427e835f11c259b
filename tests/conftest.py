"""Fixtures for every test: a home of its own, so that no test reads or writes the user's files."""

from __future__ import annotations

import importlib
import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from ggufspec import machine
from ggufspec.domain import Conditions
from tests.support import fake_server, fakes, ordering

pytest_plugins = ["tests.support.hub_client"]
_HERE = Path(__file__).parent

# The same examples on every machine, however long one takes.
settings.register_profile("same-everywhere", deadline=None, derandomize=True)
settings.load_profile("same-everywhere")

# A shell starts background jobs with Ctrl-C ignored, nohup starts programs with SIGHUP ignored, and tests
# pass that on to what they start. A signal with a handler here is at its default in all of them.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else lambda *_: None)


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker import another part of the tests first: what one has compiled, the others need not."""
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(_HERE.glob("**/test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):  # collecting it says why it cannot be imported
            importlib.import_module(".".join(file.relative_to(_HERE.parent).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let long tests begin first, where several workers run tests side by side."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers > 1:
        items[:] = ordering.deal(items, workers)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point home, cache and data folders at an empty place."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    settings = ("PAIR", "LLAMA", "ENGINE", "SUITE", "THREADS", "OFFLINE", "OUTPUT", "CONFIG")
    places = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    for variable in (*places, *(f"GGUFSPEC_{key}" for key in settings)):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GGUFSPEC_CACHE", str(folder / "cache"))
    monkeypatch.setenv("GGUFSPEC_DATA", str(folder / "data"))
    return folder


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The llama.cpp that every command finds: fake programs that answer at once. Some modules add to it."""
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


@pytest.fixture
def llama_server(llama: Path) -> Path:
    """The same with a fake llama-server."""
    fake_server.program(llama / "llama-server")
    return llama


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system write files when it likes, and let other programs seem idle before and during runs.

    Waits for the disk took a minute of some test modules, and a look at other programs takes 0.3 s. Nothing
    but a power cut shows the difference of the first. Runs that other programs disturb are made again, so
    their number would depend on the machine. A test of any of them replaces this.
    """
    conditions = machine.Watch.conditions

    def undisturbed(watch: machine.Watch) -> Conditions:
        found = conditions(watch)
        return replace(found, others_cores=found.others_cores and 0.0)  # None where a moment was too short

    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(machine, "busy_cores", lambda _watch=None: 0.0)
    monkeypatch.setattr(machine.Watch, "conditions", undisturbed)
