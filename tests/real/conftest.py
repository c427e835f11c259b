"""Real llama.cpp builds: found where `ggufspec build` keeps them, or named by the environment.

Tests run side by side, each on one thread of llama.cpp. So nothing else seems to run on the machine, but for
tests that are marked `alone`.
"""

from __future__ import annotations

import functools
import os
from importlib import metadata
from pathlib import Path

import psutil
import pytest

from ggufspec import paths
from ggufspec.llama.install import installs, store
from ggufspec.llama.install.installs import Install
from ggufspec.llama.source.sources import LEGACY
from tests.support import imagined_times

# read at import, before the fixture `home` points everything at an empty folder
_CACHE = paths.cache_dir()
_NAMED = os.environ.get("GGUFSPEC_LLAMA")
_QUIET = Path(__file__).parent.parent / "support" / "quiet"  # see its sitecustomize.py


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let other programs seem to use no processor, here and in every Python that is started."""
    if request.node.get_closest_marker("alone"):
        return
    at_start = psutil.cpu_times()
    monkeypatch.setattr(psutil, "cpu_times", lambda *_args, **_options: at_start)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(_QUIET), os.environ.get("PYTHONPATH"))))
    )


@pytest.fixture
def imagined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tunings in this process take what one imagined machine takes, whatever this one is doing."""
    imagined_times.use(monkeypatch.setattr)


@functools.cache  # asking its programs what they are takes a quarter of a second
def _built(version: str) -> Install | None:
    matching = (built for built in store.installed() if built.version == version and not built.added)
    built = next(matching, None)
    return installs.probe(built.bin, "own build", built) if built else None


@functools.cache
def _named(place: Path) -> Install | None:
    return installs.probe(place, "GGUFSPEC_LLAMA")


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> Install:
    """The llama.cpp of today, as `scripts/setup` leaves it."""
    monkeypatch.setenv("GGUFSPEC_CACHE", str(_CACHE))
    found = _named(Path(_NAMED)) if _NAMED else _built(metadata.version("llama-cpp-python"))
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
