"""Find NVIDIA's driver, its version and its library."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc

Release = tuple[int, int]
"""A version of CUDA: (13, 0)."""

_SMI = re.compile(r"Driver Version: *([\d.]+) +CUDA (?:UMD )?Version: *(\d+)\.(\d+)")
_LIBRARY = "libcuda.so.1"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
)


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The driver's version, if it reports one, and the newest CUDA that it supports."""

    version: str | None
    supports: Release

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"the driver{version} (CUDA up to {format_release(self.supports)})"


def find_driver() -> Driver | None:
    """Return the driver; None if none is installed or it does not answer."""
    smi = shutil.which("nvidia-smi")
    if smi and (match := _SMI.search(proc.capture([smi])[1])):
        return Driver(version=match[1], supports=(int(match[2]), int(match[3])))
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int(0)  # 13000 is CUDA 13.0
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0 or not number.value:
        return None
    return Driver(version=None, supports=(number.value // 1000, number.value % 1000 // 10))


def library(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the driver's library, which programs for CUDA may be linked against; None without one."""
    named = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    candidates = (Path(folder) / _LIBRARY for folder in (*filter(None, named), *_FOLDERS))
    return next((path for path in candidates if path.exists()), None)


def format_release(release: Release) -> str:
    """Return a version of CUDA as text: "13.0"."""
    return f"{release[0]}.{release[1]}"
