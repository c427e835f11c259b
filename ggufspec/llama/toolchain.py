"""What this machine offers to a build: tools, the processor's features, and which backend fits."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ggufspec import proc
from ggufspec.errors import BuildError

CMAKE_MINIMUM = (3, 24)  # knows CUDA's "native" architecture
_VERSION = re.compile(r"(\d+)\.(\d+)")
_GPU = re.compile(r"^(.+?), *(\d+)\.(\d+)$", re.MULTILINE)  # "NVIDIA H200, 9.0"
_CUDA_HOMES = ("/usr/local/cuda", "/opt/cuda")
_BYTES_PER_JOB = 1 << 30  # a compiler in llama.cpp's largest file
_FEATURES = {
    "sse4_2": "SSE42",
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_tile": "AMX_TILE",
    "amx_int8": "AMX_INT8",
    "amx_bf16": "AMX_BF16",
    "asimddp": "DOTPROD",
    "i8mm": "I8MM",
    "sve": "SVE",
}
_AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


class Backend(StrEnum):
    """What computes."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    HIP = "hip"


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """What NVIDIA's driver says: names, and compute capabilities as CMake spells them ("90")."""

    names: tuple[str, ...]
    architectures: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.names) or "an NVIDIA driver"


def choose_backend() -> tuple[Backend, str]:
    """Return the backend that fits this machine, and why."""
    if sys.platform == "darwin":
        return Backend.METAL, "Metal, because this is a Mac"
    compiler, gpus = nvcc(), nvidia()
    if compiler and gpus:
        return (
            Backend.CUDA,
            f"CUDA, because {compiler} and {', '.join(gpus.names) or 'an NVIDIA driver'} are here",
        )
    if compiler:
        return Backend.CPU, f"CPU, because {compiler} is here but no NVIDIA driver"
    if gpus:
        return (
            Backend.CPU,
            "CPU, because an NVIDIA driver is here but no nvcc (install the CUDA toolkit for CUDA)",
        )
    return Backend.CPU, "CPU, because neither nvcc nor an NVIDIA driver is here"


def tool(name: str, *, hint: str) -> Path:
    """Return a program from PATH, else from the scripts of this Python environment.

    Raises:
        BuildError: it is in neither.
    """
    found = next((Path(place) for place in _places(name)), None)
    if found is None:
        raise BuildError(f"{name} was not found", hint)
    return found


def cmake() -> Path:
    """Return the first CMake that is new enough.

    Raises:
        BuildError: there is none.
    """
    for place in _places("cmake"):
        _, out, _ = proc.capture([place, "--version"])
        version = _VERSION.search(out)
        if version and tuple(map(int, version.groups())) >= CMAKE_MINIMUM:
            return Path(place)
    needed = ".".join(map(str, CMAKE_MINIMUM))
    raise BuildError(f"no CMake of at least {needed} was found", "pip install cmake")


def nvcc() -> Path | None:
    """Return the CUDA compiler, or None."""
    named = [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    homes = [Path(home) / "bin" / "nvcc" for home in (*named, *_CUDA_HOMES)]
    candidates = (os.environ.get("CUDACXX"), shutil.which("nvcc"), *homes)
    return next((Path(place) for place in candidates if place and os.access(place, os.X_OK)), None)


def cuda_home() -> Path | None:
    """Return the CUDA toolkit that the compiler belongs to, even where nvcc on PATH is a wrapper; or None."""
    compiler = nvcc()
    named = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    own = [compiler.resolve().parent.parent] if compiler else []
    homes = (*own, *named, *map(Path, _CUDA_HOMES))
    return next((home for home in homes if (home / "include" / "cuda_runtime.h").is_file()), None)


def nvidia() -> Gpus | None:
    """Return what NVIDIA's driver manages; None without a driver that works."""
    smi = shutil.which("nvidia-smi")
    if smi:
        completed, out, _ = proc.capture([smi, "--query-gpu=name,compute_cap", "--format=csv,noheader"])
        rows = _GPU.findall(out)
        if completed.returncode == 0 and rows:
            capabilities = {major + minor for _, major, minor in rows}
            names = tuple(name for name, _, _ in rows)
            return Gpus(names=names, architectures=tuple(sorted(capabilities, key=int)))
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    works = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
    return Gpus(names=(), architectures=("native",)) if works else None


def cuda_architectures() -> tuple[str, ...]:
    """Return what to compile CUDA code for: CUDAARCHS as CMake reads it, else the GPUs of this machine."""
    named = tuple(filter(None, os.environ.get("CUDAARCHS", "").split(";")))
    gpus = nvidia()
    return named or (gpus.architectures if gpus else ())


def cpu_features(text: str | None = None) -> frozenset[str]:
    """Return the processor's features that llama.cpp has code for, as its options name them.

    Args:
        text: the content of /proc/cpuinfo, for another machine than this one.
    """
    if text is None:
        text = _read("/proc/cpuinfo")
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    named = {option for flag, option in _FEATURES.items() if flag in flags}
    return frozenset(named | ({"AVX512"} if flags >= _AVX512 else set()))


def machine() -> frozenset[str]:
    """Return what programs compiled here may rely on: the system, the processor's family and features."""
    return cpu_features() | {f"{sys.platform}-{platform.machine()}"}


def default_jobs() -> int:
    """Return how many compilers may run at once: one for every core we may use and every free GiB."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    free = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return max(1, min(cores, int(free[1]) * 1024 // _BYTES_PER_JOB if free else cores))


def environment(backend: Backend, *, history: bool) -> Mapping[str, str]:
    """Return the environment of a build.

    Args:
        backend: CUDA's and HIP's compilers are named by the environment.
        history: whether the tree has a git history of its own. Otherwise git must find nothing, or the
            build would count the commits of whatever repository the cache lies in.
    """
    changed = {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    if not history:
        changed["GIT_DIR"] = os.devnull
    if backend is Backend.CUDA and (compiler := nvcc()):
        changed["PATH"] = f"{compiler.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        changed["CUDACXX"] = str(compiler)
    if backend is Backend.HIP and (hipconfig := shutil.which("hipconfig")):
        _, clang, _ = proc.capture([hipconfig, "-l"])
        _, home, _ = proc.capture([hipconfig, "-R"])
        changed |= {"HIPCXX": f"{clang.strip()}/clang", "HIP_PATH": home.strip()}
    return os.environ | changed


def _places(name: str) -> list[str]:
    return [
        place for path in (None, sysconfig.get_path("scripts")) if (place := shutil.which(name, path=path))
    ]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
