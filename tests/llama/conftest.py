"""Fake tools, the only ones on PATH; what is on the disk before it is named; and trees of llama.cpp."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ggufspec.llama.build import toolchain
from tests.support import fakes, shell


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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder that looks like llama.cpp, with what an earlier build left in it."""
    root = tmp_path / "my tree"
    for name in ("include/llama.h", "models/vocab.gguf", "build/CMakeCache.txt", "build/huge.bin", "ggml.o"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "CMakeLists.txt").write_text("project(fake)\n")
    (root / "README.md").symlink_to("CMakeLists.txt")
    return root


@pytest.fixture
def repository(tree: Path) -> Path:
    """The same folder as a git repository with two commits; the tag b1 and the branch side are the first."""
    shell.git(tree, "init", "--quiet")
    shell.git(tree, "add", "CMakeLists.txt", "include")
    shell.git(tree, "commit", "--quiet", "-m", "one")
    shell.git(tree, "tag", "b1")
    shell.git(tree, "branch", "side")
    shell.git(tree, "add", "models")
    shell.git(tree, "commit", "--quiet", "-m", "two")
    shell.git(tree, "update-server-info")
    return tree
