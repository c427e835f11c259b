"""What this machine provides for a build: tools, GPUs, environment, and the backend that fits."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec import machine, proc
from ggufspec.choices import Backend
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.cuda import format_release
from ggufspec.redaction import without_secrets

CMAKE_MINIMUM = (3, 24)  # knows CUDA's "native" architecture
_VERSION = re.compile(r"(\d+)\.(\d+)")
_GPU = re.compile(r"^(.+?), *(\d+)\.(\d+)$", re.MULTILINE)  # "NVIDIA H200, 9.0"
_ARCHITECTURE = re.compile(r"\d{2,3}[af]?(?:-real|-virtual)?|native|all|all-major")
_CUDA_HOMES = ("/usr/local/cuda", "/opt/cuda")
_SHAPING = (
    "CC CXX CPP LD AR AS NM RANLIB STRIP OBJCOPY OBJC OBJCXX CUDACXX CUDAARCHS CUDAHOSTCXX HIPCXX HIPARCHS "
    "HIPHOSTCXX ASFLAGS CFLAGS CPPFLAGS CXXFLAGS LDFLAGS LDLIBS OBJCFLAGS OBJCXXFLAGS CUDAFLAGS HIPFLAGS "
    "CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH OBJC_INCLUDE_PATH LIBRARY_PATH COMPILER_PATH GCC_EXEC_PREFIX "
    "LD_LIBRARY_PATH LD_PRELOAD LD_RUN_PATH MAKEFLAGS GNUMAKEFLAGS MFLAGS SOURCE_DATE_EPOCH SDKROOT "
    "DEVELOPER_DIR MACOSX_DEPLOYMENT_TARGET GPU_TARGETS AMDGPU_TARGETS VULKAN_SDK MKLROOT ONEAPI_ROOT"
)
_SHAPING_PREFIXES = (
    *("CMAKE_", "GGML_", "LLAMA_", "CUDA_", "CUDAToolkit_", "NVCC_", "HIP_", "ROCM_", "CCACHE_"),
    *("DYLD_", "PKG_CONFIG_", "NIX_", "Vulkan_", "BLAS_", "OpenMP_", "MKL_"),
)
_FINDS_CERTIFICATES = "NIX_SSL_CERT_FILE"  # of the prefix "NIX_", but no compiler reads it
TOOLS_HINT = "pip install 'ggufspec[build]'; or `ggufspec build --prebuilt`, which compiles nothing"
"""What to do where CMake or Ninja is missing."""

_BYTES_PER_JOB = 1 << 30  # a compiler in llama.cpp's largest file


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The GPUs of NVIDIA's driver: names, and compute capabilities as CMake spells them ("90")."""

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
        return Backend.CUDA, f"CUDA, because {compiler} and {gpus} were found"
    if compiler:
        return Backend.CPU, f"CPU, because {compiler} was found but no NVIDIA driver"
    if gpus:
        driver = cuda.find_driver()
        if cuda.wheels_suit(driver):
            return Backend.CUDA, f"CUDA, because {gpus} was found; its compiler comes from the package index"
        assert driver is not None, "without one, wheels serve"
        fix = f"update the driver, or install the CUDA {format_release(driver.supports)} toolkit"
        return Backend.CPU, f"CPU, because no nvcc was found and {driver} is older than its wheels ({fix})"
    return Backend.CPU, "CPU, because neither nvcc nor an NVIDIA driver was found"


def tool(name: str, *, hint: str) -> Path:
    """Return a program from PATH, else from the scripts of this Python environment.

    Raises:
        BuildError: it is in neither.
    """
    path = next((Path(candidate) for candidate in _places(name)), None)
    if path is None:
        raise BuildError(f"{name} was not found", hint)
    return path


def cmake() -> Path:
    """Return the first CMake that is new enough.

    Raises:
        BuildError: there is none.
    """
    for candidate in _places("cmake"):
        _, out, _ = proc.capture([candidate, "--version"])
        version = _VERSION.search(out)
        if version and tuple(map(int, version.groups())) >= CMAKE_MINIMUM:
            return Path(candidate)
    needed = ".".join(map(str, CMAKE_MINIMUM))
    raise BuildError(f"no CMake of at least {needed} was found", TOOLS_HINT)


def nvcc() -> Path | None:
    """Return the CUDA compiler, or None."""
    named = [os.environ[name] for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    homes = [Path(home) / "bin" / "nvcc" for home in (*named, *_CUDA_HOMES)]
    candidates = (os.environ.get("CUDACXX"), shutil.which("nvcc"), *homes)
    return next((Path(path) for path in candidates if path and os.access(path, os.X_OK)), None)


def cuda_home() -> Path | None:
    """Return the CUDA toolkit of the compiler, even if nvcc on PATH is a wrapper; None without one."""
    compiler = nvcc()
    named = [Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name)]
    beside = [compiler.resolve().parent.parent] if compiler else []
    homes = (*beside, *named, *map(Path, _CUDA_HOMES))
    return next((home for home in homes if (home / "include" / "cuda_runtime.h").is_file()), None)


def nvidia() -> Gpus | None:
    """Return the GPUs of NVIDIA's driver; None without a working driver."""
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


def cuda_architectures(text: str | None = None) -> tuple[str, ...]:
    """Return the architectures to compile CUDA code for, as CMake spells them.

    Args:
        text: compute capabilities as users write them, "86,89,90" or "8.6;8.9"; None for CUDAARCHS, and
            without that the GPUs of this machine.

    Raises:
        BuildError: the text is not a list of architectures.
    """
    named = text if text is not None else os.environ.get("CUDAARCHS", "")
    words = [word.strip().replace(".", "") for word in re.split(r"[;,]", named) if word.strip()]
    if wrong := [word for word in words if not _ARCHITECTURE.fullmatch(word)]:
        raise BuildError(f"not a GPU architecture: {wrong[0]}", "write them as in --cuda-arch 86,89,90")
    if text is not None and not words:
        raise BuildError("no architecture is given", "write them as in --cuda-arch 86,89,90")
    gpus = nvidia()
    return tuple(dict.fromkeys(words)) or (gpus.architectures if gpus else ())


def default_jobs() -> int:
    """Return the number of parallel compilers: one per usable core and free GiB of memory."""
    return max(1, min(machine.usable_threads(), machine.memory().free_bytes // _BYTES_PER_JOB))


def compiler_cache() -> Path | None:
    """Return ccache, or else sccache; None without them."""
    path = shutil.which("ccache") or shutil.which("sccache")
    return Path(path) if path else None


def shaping(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that may affect a build: compilers, flags, paths, settings of tools."""
    variables = without_secrets(os.environ if environ is None else environ)
    return {name: variables[name] for name in sorted(variables) if _may_shape(name)}


def _may_shape(name: str) -> bool:
    is_named = name in _SHAPING.split() or name.startswith(_SHAPING_PREFIXES)
    return is_named and name != _FINDS_CERTIFICATES


def differences(recorded: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the differences between the variables that were set for a build and those set now.

    Args:
        recorded: what ``shaping`` returned then; None if it was not recorded.
    """
    if recorded is None:
        return ()
    now = shaping()
    before = {
        name: f"with {name}={recorded[name]}" if name in recorded else f"without {name}"
        for name in filter(_may_shape, sorted({*recorded, *now}))
        if recorded.get(name) != now.get(name)
    }
    return tuple(
        f"it was built {setting}, and now {name} is {now.get(name, 'not set')}"
        for name, setting in before.items()
    )


def environment(
    backend: Backend, *, history: bool, cuda_compiler: Path | None = None, base: Path | None = None
) -> Mapping[str, str]:
    """Return the environment for a build: this process's own without secrets, and settings for the tools.

    Args:
        backend: for CUDA and HIP, the compilers are set by variables.
        cuda_compiler: the nvcc to use; None to search for one.
        base: the folder that contains everything compiled. The compiler cache ignores its name, so that it
            recognizes the same source in another folder.
        history: whether the tree has a git history of its own. Otherwise git must find nothing, or the
            build would count the commits of whatever repository the cache lies in.
    """
    changed = {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C.UTF-8", "GIT_OPTIONAL_LOCKS": "0"}
    if not history:
        changed["GIT_DIR"] = os.devnull
    if base is not None:
        changed |= {
            "CCACHE_BASEDIR": str(base),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_COMPILERCHECK": "content",  # a toolkit of wheels has new timestamps every time
        }
    if backend is Backend.CUDA and (compiler := cuda_compiler or nvcc()):
        changed["PATH"] = f"{compiler.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        changed["CUDACXX"] = str(compiler)
    if backend is Backend.HIP and (hipconfig := shutil.which("hipconfig")):
        _, clang, _ = proc.capture([hipconfig, "-l"])
        _, home, _ = proc.capture([hipconfig, "-R"])
        changed |= {"HIPCXX": f"{clang.strip()}/clang", "HIP_PATH": home.strip()}
    return without_secrets(os.environ) | changed


def _places(name: str) -> list[str]:
    return [
        path
        for scripts in (None, sysconfig.get_path("scripts"))
        if (path := shutil.which(name, path=scripts))
    ]
