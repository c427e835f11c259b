"""Installs of llama.cpp with what their programs can, and what a build of it needs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggufspec import engines, paths, proc
from ggufspec.doctor.finding import Finding, install_command, missing, ok, remark
from ggufspec.domain import Program
from ggufspec.errors import BuildError, NoInstallError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain, toolkit as cuda_toolkit
from ggufspec.llama.install import Install, Skipped, installs as install_survey, store
from ggufspec.machine import Gpu
from ggufspec.options import settings

_NAME = "llama.cpp"
_BUILD = "ggufspec build"
_DRAFTERS = (Program.TREE, Program.SIMPLE, Program.SERVER)


def installs(present: Sequence[Install], gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Report the programs of each install; the first install is the one that is used."""
    if not present:
        yield missing(_NAME, "not found", _BUILD)
    for install in present:
        abilities = [*(program.value for program in install.programs), *(["rpc"] if install.has_rpc else [])]
        abilities_text = ", ".join(abilities) or "the library alone"
        origin = "" if install.origin == store.OWN_BUILD else f", {install.origin}"
        name = f"{install.version or 'of unknown version'} {install.backend or 'unknown backend'}"
        text = f"{name}: {abilities_text}{origin} ({install.root})"
        if install is present[0] and gpus and install.gpu is False:
            yield remark(_NAME, f"{text}: it does not use the GPU", f"{_BUILD} --backend cuda")
        elif install.programs and not set(_DRAFTERS) & install.programs.keys():
            yield remark(_NAME, f"{text}: none of its programs can draft", _BUILD)
        else:
            yield ok(_NAME, text)


def skipped(builds: Sequence[Skipped]) -> Iterator[Finding]:
    """Report the builds that cannot be used, with the reason."""
    for build in builds:
        judge = missing if build.is_damaged else remark
        yield judge(_NAME, f"{build.path} is not used: {build.reason}", build.command)


def find_installs(
    named: settings.Setting | None,
) -> tuple[tuple[Install, ...], tuple[Skipped, ...], Finding | None]:
    """Return the installs, the builds that cannot be used, and what is wrong with the named one.

    The first install is the one that is used.

    Args:
        named: the setting ``llama``.
    """
    present, unusable = install_survey.survey_installs()
    if named is None or named.value is None:
        return present, unusable, None
    where = named.where or named.key
    first = install_survey.probe(paths.expanded(str(named.value), where), where)
    if first is not None:
        return (first, *(other for other in present if other.root != first.root)), unusable, None
    fixes = {
        settings.SettingSource.DEFAULT: "ggufspec doctor",  # named by --llama
        settings.SettingSource.FILE: "ggufspec config unset llama",
        settings.SettingSource.ENVIRONMENT: f"unset {where}",
    }
    reason = f"{where} is {named.value}, which has no working llama.cpp program"
    return present, unusable, missing(_NAME, reason, fixes[named.source])


def library(present: Sequence[Install]) -> Finding:
    """Report whether the in-process engine has a library that it can use.

    Args:
        present: the installs.
    """
    name, problems = "library", list[str]()
    for candidate in present:
        try:
            engines.check_library(candidate)
        except NoInstallError as error:
            problems.append(error.message)
        else:
            return ok(name, f"--engine inprocess uses {candidate.library}")
    reason = problems[0] if problems else "no llama.cpp was found"
    return remark(name, f"no --engine inprocess: {reason}", _BUILD)


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
