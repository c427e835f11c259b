"""What a build of llama.cpp needs: compiler, CMake, Ninja, and for NVIDIA's GPUs a toolkit that fits."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc
from ggufspec.doctor.finding import Finding, install_words, missing, ok, remark
from ggufspec.errors import BuildError
from ggufspec.llama.build import toolchain
from ggufspec.llama.build import toolkit as cuda_toolkit
from ggufspec.llama.cuda import Release
from ggufspec.llama.cuda import driver as cuda_driver
from ggufspec.llama.cuda import format_release as _text
from ggufspec.llama.cuda import wheels as cuda_wheels

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """CUDA's two halves on this machine; None for what is not here."""

    compiler: Path | None = None
    toolkit: Release | None = None
    headers: bool = True
    whole: bool = True  # compiler, headers and cuBLAS; otherwise builds take all of them from wheels
    driver: str | None = None
    supports: Release | None = None  # the newest CUDA that the driver was made for
    capabilities: tuple[int, ...] = ()  # of the GPUs: 90 is 9.0


def compiler() -> Finding:
    """Say which C++ compiler a build takes."""
    named = os.environ.get("CXX")
    path = next(
        (found for name in ((named,) if named else _COMPILERS) if (found := shutil.which(name))), None
    )
    if path is None:
        said = f"CXX names {named}, which does not exist" if named else "no C++ compiler was found"
        return missing("compiler", said, "unset CXX" if named else install_words("g++"))
    return ok("compiler", f"{_first_line(path)} ({path})")


def cmake() -> Finding:
    """Say which CMake a build takes."""
    try:
        path = toolchain.cmake()
    except BuildError as error:
        return missing("CMake", error.message, error.hint or "pip install cmake")
    return ok("CMake", f"{_first_line(str(path)).removeprefix('cmake version ')} ({path})")


def ninja() -> Finding:
    """Say which Ninja a build takes."""
    try:
        path = toolchain.tool("ninja", hint="pip install ninja")
    except BuildError as error:
        return missing("Ninja", error.message, error.hint or "pip install ninja")
    return ok("Ninja", f"{_first_line(str(path))} ({path})")


def look_for_cuda() -> Cuda:
    """Ask NVIDIA's compiler and driver what they are."""
    found, driver, gpus = toolchain.nvcc(), cuda_driver.find_driver(), toolchain.nvidia()
    version = driver.version if driver else None
    return Cuda(
        compiler=found,
        toolkit=cuda_toolkit.release_of(found) if found else None,
        headers=toolchain.cuda_home() is not None,
        whole=cuda_toolkit.system() is not None,
        driver=version or ("of unknown version" if driver or gpus else None),
        supports=driver.supports if driver else None,
        capabilities=tuple(int(each) for each in (gpus.architectures if gpus else ()) if each.isdecimal()),
    )


def cuda(found: Cuda) -> Finding:
    """Judge whether toolkit, driver and GPUs fit together."""
    name = "CUDA"
    if found.driver is None:
        if found.compiler is None:
            return ok(name, "no NVIDIA toolkit or driver found")
        return remark(name, f"found {found.compiler}, but no working driver", "install NVIDIA's driver")
    if found.compiler is None or found.toolkit is None or not found.whole:
        return _without_toolkit(found)
    said = f"toolkit {_text(found.toolkit)} ({found.compiler}), driver {found.driver}"
    if found.supports:
        said += f" for CUDA up to {_text(found.supports)}"
    if not found.headers:
        return remark(name, f"{said}; the toolkit has no headers", "install all of the CUDA toolkit")
    if found.supports and found.toolkit[0] > found.supports[0]:
        mend = f"update the driver, or install a CUDA toolkit of {found.supports[0]}.x"
        return remark(name, f"{said}: the driver is too old for what the toolkit compiles", mend)
    return _fits_gpus(found, said)


def _without_toolkit(found: Cuda) -> Finding:
    here = "no toolkit" if found.compiler is None else f"no complete toolkit beside {found.compiler}"
    supports = f" for CUDA up to {_text(found.supports)}" if found.supports else ""
    said = f"found the driver {found.driver}{supports}, but {here}"
    if found.supports is None or found.supports >= cuda_wheels.PINNED:
        wheels = "in this environment" if cuda_wheels.find_wheels() else "from the package index"
        return ok("CUDA", f"{said}: builds use the wheels of CUDA {_text(cuda_wheels.PINNED)} {wheels}")
    return remark(
        "CUDA",
        f"{said}, and it is too old for the wheels of CUDA {_text(cuda_wheels.PINNED)}: builds would not "
        "use the GPU",
        f"update the driver, or install the CUDA toolkit (up to CUDA {_text(found.supports)}): "
        f"{install_words('nvidia-cuda-toolkit')}",
    )


def _fits_gpus(found: Cuda, said: str) -> Finding:
    assert found.toolkit is not None
    for capability in found.capabilities:
        first = cuda_toolkit.first_for(capability)
        gpu = f"compute capability {capability // 10}.{capability % 10}"
        if found.toolkit < first:
            return remark("CUDA", f"{said}: too old for {gpu}", f"install CUDA {_text(first)} or newer")
        last, oldest = cuda_toolkit.ALL_BUT_OLD
        if found.toolkit[0] >= last and capability < oldest:
            return remark("CUDA", f"{said}: too new for {gpu}", f"install CUDA {last - 1}.x")
    return ok("CUDA", said)


def now() -> Iterator[Finding]:
    """Look at what is installed here."""
    yield compiler()
    yield cmake()
    yield ninja()
    yield cuda(look_for_cuda())


def _first_line(program: str) -> str:
    return (_ask([program, "--version"]).splitlines() or ["of unknown version"])[0]


def _ask(words: list[str]) -> str:
    with suppress(OSError):
        _, out, _ = proc.capture(words, timeout_s=20)
        return out
    return ""
