"""Real llama.cpp builds: found where `ggufspec build` keeps them, or named by the environment."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.llama.install import installs, store
from ggufspec.llama.install.installs import Install
from ggufspec.llama.source.sources import LEGACY

# read at import, before the fixture `home` points everything at an empty folder
_CACHE = paths.cache_dir()
_NAMED = os.environ.get("GGUFSPEC_LLAMA")


def _built(version: str) -> Install | None:
    matching = (built for built in store.installed() if built.version == version and not built.added)
    built = next(matching, None)
    return installs.probe(built.bin, "own build", built) if built else None


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Install:
    """The llama.cpp of today, as `scripts/setup` leaves it."""
    monkeypatch.setenv("GGUFSPEC_CACHE", str(_CACHE))
    found = (
        installs.probe(Path(_NAMED), "GGUFSPEC_LLAMA")
        if _NAMED
        else _built(metadata.version("llama-cpp-python"))
    )
    if found is None:
        pytest.fail("no llama.cpp: run scripts/test, which builds it")
    return found


@pytest.fixture
def legacy(monkeypatch: pytest.MonkeyPatch) -> Install:
    """The llama.cpp of April 2024, the Llama-3 notebook's."""
    monkeypatch.setenv("GGUFSPEC_CACHE", str(_CACHE))
    found = _built(LEGACY)
    if found is None:
        pytest.fail("no legacy llama.cpp: run scripts/test, which builds it")
    return found
