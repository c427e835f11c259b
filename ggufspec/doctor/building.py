"""What a build of llama.cpp needs: compiler, CMake, Ninja, and for NVIDIA GPUs a suitable toolkit."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc
from ggufspec.doctor.finding import Finding, install_command, missing, ok, remark
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain
from ggufspec.llama.build import toolkit as cuda_toolkit

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """The CUDA toolkit and driver on this machine; None for what is missing."""

    compiler: Path | None = None
    toolkit: cuda.Release | None = None
    headers: bool = True
    is_complete: bool = True  # compiler, headers and cuBLAS; otherwise builds use wheels
    driver: str | None = None
    supports: cuda.Release | None = None  # the newest CUDA that the driver was made for
    capabilities: tuple[int, ...] = ()  # of the GPUs: 90 is 9.0


def compiler() -> Finding:
    """Report the C++ compiler that builds use."""
    named = os.environ.get("CXX")
    path = next(
        (executable for name in ((named,) if named else _COMPILERS) if (executable := shutil.which(name))),
        None,
    )
    if path is None:
        text = f"CXX is {named}, which does not exist" if named else "no C++ compiler was found"
        return missing("compiler", text, "unset CXX" if named else install_command("g++"))
    return ok("compiler", f"{_first_line(path)} ({path})")


def cmake() -> Finding:
    """Report the CMake that builds use."""
    try:
        path = toolchain.cmake()
    except BuildError as error:
        return missing("CMake", error.message, error.hint or toolchain.TOOLS_HINT)
    return ok("CMake", f"{_first_line(str(path)).removeprefix('cmake version ')} ({path})")


def ninja() -> Finding:
    """Report the Ninja that builds use."""
    try:
        path = toolchain.tool("ninja", hint=toolchain.TOOLS_HINT)
    except BuildError as error:
        return missing("Ninja", error.message, error.hint or toolchain.TOOLS_HINT)
    return ok("Ninja", f"{_first_line(str(path))} ({path})")


def find_cuda() -> Cuda:
    """Look for NVIDIA's compiler, driver and GPUs."""
    nvcc, driver, gpus = toolchain.nvcc(), cuda.find_driver(), toolchain.nvidia()
    version = driver.version if driver else None
    return Cuda(
        compiler=nvcc,
        toolkit=cuda_toolkit.release_of(nvcc) if nvcc else None,
        headers=toolchain.cuda_home() is not None,
        is_complete=cuda_toolkit.system() is not None,
        driver=version or ("of unknown version" if driver or gpus else None),
        supports=driver.supports if driver else None,
        capabilities=tuple(int(name) for name in (gpus.architectures if gpus else ()) if name.isdecimal()),
    )


def nvidia(installed: Cuda) -> Finding:
    """Report whether toolkit, driver and GPUs fit together."""
    name = "CUDA"
    if installed.driver is None:
        if installed.compiler is None:
            return ok(name, "no NVIDIA toolkit or driver found")
        return remark(name, f"found {installed.compiler}, but no working driver", "install NVIDIA's driver")
    if installed.compiler is None or installed.toolkit is None or not installed.is_complete:
        return _without_toolkit(installed)
    text = (
        f"toolkit {cuda.format_release(installed.toolkit)} ({installed.compiler}), driver {installed.driver}"
    )
    if installed.supports:
        text += f" for CUDA up to {cuda.format_release(installed.supports)}"
    if not installed.headers:
        return remark(name, f"{text}; the toolkit has no headers", "install the complete CUDA toolkit")
    if installed.supports and installed.toolkit[0] > installed.supports[0]:
        fix = f"update the driver, or install a CUDA toolkit of {installed.supports[0]}.x"
        return remark(name, f"{text}: the driver is too old for what the toolkit compiles", fix)
    return _fits_gpus(installed, text)


def _without_toolkit(installed: Cuda) -> Finding:
    problem = (
        "no toolkit" if installed.compiler is None else f"no complete toolkit beside {installed.compiler}"
    )
    supports = f" for CUDA up to {cuda.format_release(installed.supports)}" if installed.supports else ""
    text = f"found the driver {installed.driver}{supports}, but {problem}"
    if installed.supports is None or installed.supports >= cuda.PINNED:
        wheels = "in this environment" if cuda.find_wheels() else "from the package index"
        return ok(
            "CUDA", f"{text}: builds use the wheels of CUDA {cuda.format_release(cuda.PINNED)} {wheels}"
        )
    return remark(
        "CUDA",
        f"{text}, and it is too old for the wheels of CUDA {cuda.format_release(cuda.PINNED)}: "
        "builds would not use the GPU",
        "update the driver, or install the CUDA toolkit "
        f"(up to CUDA {cuda.format_release(installed.supports)}): {install_command('nvidia-cuda-toolkit')}",
    )


def _fits_gpus(installed: Cuda, text: str) -> Finding:
    assert installed.toolkit is not None
    for capability in installed.capabilities:
        first = cuda_toolkit.first_for(capability)
        gpu = f"compute capability {capability // 10}.{capability % 10}"
        if installed.toolkit < first:
            return remark(
                "CUDA", f"{text}: too old for {gpu}", f"install CUDA {cuda.format_release(first)} or newer"
            )
        last, oldest = cuda_toolkit.ALL_BUT_OLD
        if installed.toolkit[0] >= last and capability < oldest:
            return remark("CUDA", f"{text}: too new for {gpu}", f"install CUDA {last - 1}.x")
    return ok("CUDA", text)


def examine_building() -> Iterator[Finding]:
    """Check the tools of a build."""
    yield compiler()
    yield cmake()
    yield ninja()
    yield nvidia(find_cuda())


def _first_line(program: str) -> str:
    return (_ask([program, "--version"]).splitlines() or ["of unknown version"])[0]


def _ask(words: list[str]) -> str:
    with suppress(OSError):
        _, out, _ = proc.capture(words, timeout_s=20)
        return out
    return ""
