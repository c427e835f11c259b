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
from ggufspec.checkup.finding import Finding, install_words, missing, ok, remark
from ggufspec.errors import BuildError
from ggufspec.llama import toolchain

Release = tuple[int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_NVCC = re.compile(r"release (\d+)\.(\d+)")
_DRIVER = re.compile(r"Driver Version: *([\d.]+) +CUDA (?:UMD )?Version: *(\d+)\.(\d+)")
_COMPILERS = ("c++", "g++", "clang++")
_FIRST_FOR = {89: (11, 8), 90: (11, 8), 100: (12, 8), 120: (12, 8)}
"""Compute capability -> the first CUDA that compiles for it (CUDA's release notes)."""
_ALL_BUT_OLD = (13, 75)
"""CUDA 13 compiles for nothing older than compute capability 7.5."""


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """CUDA's two halves on this machine; None for what is not here."""

    compiler: Path | None = None
    toolkit: Release | None = None
    headers: bool = True
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
        said = f"CXX names {named}, which is not here" if named else "no C++ compiler was found"
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
    found, supports, driver = toolchain.nvcc(), None, None
    toolkit = _NVCC.search(_ask([str(found), "--version"])) if found else None
    smi, gpus = shutil.which("nvidia-smi"), toolchain.nvidia()
    if smi and (match := _DRIVER.search(_ask([smi]))):
        driver, supports = match[1], (int(match[2]), int(match[3]))
    return Cuda(
        compiler=found,
        toolkit=(int(toolkit[1]), int(toolkit[2])) if toolkit else None,
        headers=toolchain.cuda_home() is not None,
        driver=driver or ("of unknown version" if gpus else None),
        supports=supports,
        capabilities=tuple(int(each) for each in (gpus.architectures if gpus else ()) if each.isdecimal()),
    )


def cuda(found: Cuda) -> Finding:
    """Judge whether toolkit, driver and GPUs fit together."""
    name = "CUDA"
    if found.driver is None:
        if found.compiler is None:
            return ok(name, "neither toolkit nor driver of NVIDIA is here")
        return remark(name, f"{found.compiler} is here, but no driver that works", "install NVIDIA's driver")
    if found.compiler is None or found.toolkit is None:
        newest = f" (up to CUDA {_said(found.supports)})" if found.supports else ""
        return remark(
            name,
            f"the driver {found.driver} is here, but no toolkit: builds would not use the GPU",
            f"install the CUDA toolkit{newest}: {install_words('nvidia-cuda-toolkit')}",
        )
    said = f"toolkit {_said(found.toolkit)} ({found.compiler}), driver {found.driver}"
    if found.supports:
        said += f" for CUDA up to {_said(found.supports)}"
    if not found.headers:
        return remark(name, f"{said}; the toolkit has no headers", "install all of the CUDA toolkit")
    if found.supports and found.toolkit[0] > found.supports[0]:
        mend = f"update the driver, or install a CUDA toolkit of {found.supports[0]}.x"
        return remark(name, f"{said}: the driver is too old for what the toolkit compiles", mend)
    return _fits_gpus(found, said)


def _fits_gpus(found: Cuda, said: str) -> Finding:
    assert found.toolkit is not None
    for capability in found.capabilities:
        first = max((need for known, need in _FIRST_FOR.items() if known <= capability), default=(0, 0))
        gpu = f"compute capability {capability // 10}.{capability % 10}"
        if found.toolkit < first:
            return remark("CUDA", f"{said}: too old for {gpu}", f"install CUDA {_said(first)} or newer")
        if found.toolkit[0] >= _ALL_BUT_OLD[0] and capability < _ALL_BUT_OLD[1]:
            return remark("CUDA", f"{said}: too new for {gpu}", f"install CUDA {_ALL_BUT_OLD[0] - 1}.x")
    return ok("CUDA", said)


def now() -> Iterator[Finding]:
    """Look at what is installed here."""
    yield compiler()
    yield cmake()
    yield ninja()
    yield cuda(look_for_cuda())


def _said(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def _first_line(program: str) -> str:
    return (_ask([program, "--version"]).splitlines() or ["of unknown version"])[0]


def _ask(words: list[str]) -> str:
    with suppress(OSError):
        _, out, _ = proc.capture(words, timeout_s=20)
        return out
    return ""
