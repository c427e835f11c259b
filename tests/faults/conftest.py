"""What the tests of faults share: a disk that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of its own; the parameter says how little room it has, in mount's words for tmpfs."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", request.param, "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a disk that is full soon")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
