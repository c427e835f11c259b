"""Fake tools for builds, which are the only ones on PATH, and what is on the disk before it is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ggufspec.llama.build import toolchain
from tests.support import fakes


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Write a fake tool, by its name and its script, into the only folder on PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "_CUDA_HOMES", ())
    for name in ("CUDA_PATH", "CUDA_HOME", "CUDACXX", "CUDAARCHS", "CUDAHOSTCXX", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)
    return lambda name, script: fakes.script(folder / name, f"{script}\n")


@pytest.fixture
def watch_syncs(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[str]]:
    """Return the names of what is written to the disk from now on: a folder's parent last, all else first."""
    if not Path("/dev/fd").is_dir():
        pytest.skip("this system does not tell which file a descriptor belongs to")

    def watch(folder: Path) -> list[str]:
        synced: list[str] = []

        def fsync(descriptor: int) -> None:
            path = Path(f"/dev/fd/{descriptor}").resolve()
            assert folder.exists() == (path == folder.parent)
            synced.append(path.name)

        monkeypatch.setattr(os, "fsync", fsync)
        return synced

    return watch
