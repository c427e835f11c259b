"""Fixtures for every test: a home of its own, so that no test reads or writes the user's files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import ordering

pytest_plugins = ["tests.support.hub_client"]

# The same examples on every machine, however long one takes.
settings.register_profile("same-everywhere", deadline=None, derandomize=True)
settings.load_profile("same-everywhere")

# A shell starts background jobs with Ctrl-C ignored, nohup starts programs with SIGHUP ignored, and tests
# pass that on to what they start. A signal with a handler here is at its default in all of them.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else lambda *_: None)


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


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system write files when it likes: the waits for the disk took a minute of some test modules.

    Nothing but a power cut shows the difference. A test that something is synced replaces this.
    """
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
