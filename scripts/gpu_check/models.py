"""Random models, written where they are measured."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_check.presets import Model
from gpu_check.steps import NotRunError

_SCRIPT = Path(__file__).parent.parent / "make_random_gguf.py"
_SIZE = re.compile(r"([\d.]+) GB of weights")
_SPARE_BYTES = 2 << 30


def size_bytes(model: Model) -> int:
    """Return how large a model will be, without writing it."""
    match = _SIZE.search(_make(model, "--dry-run"))
    assert match is not None, "the script says the size last"
    return int(float(match[1]) * 1e9)


def write(model: Model, folder: Path, seconds: float) -> Path:
    """Return a model's file, written now, in so many seconds at most, unless it is there.

    Raises:
        NotRunError: the disk has no room for it.
    """
    path = folder / f"{model.name}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        needed, free = size_bytes(model), shutil.disk_usage(folder).free
        if free < needed + _SPARE_BYTES:
            raise NotRunError(f"{path.name} takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free")
        _make(model, "-o", str(path), seconds=seconds)
    return path


def _make(model: Model, *words: str, seconds: float = 60) -> str:
    command = [sys.executable, str(_SCRIPT), *model.words, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise RuntimeError(f"make_random_gguf.py: {done.stderr.strip()[-300:]}")
    return done.stderr
