"""Fixtures for every test: a home of its own, so that no test reads or writes the user's files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["tests.hub_client"]


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
