"""Installs of llama.cpp with what their programs can, and what a build of it needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
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
        settings.SettingSource.DEFAULT: "leave out --llama: ggufspec doctor",
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


_COMPILERS = ("c++", "g++", "clang++")


def compiler() -> Finding:
    """Report the C++ compiler that builds use."""
    named = os.environ.get("CXX")
    found = (shutil.which(name) for name in ((named,) if named else _COMPILERS))
    path = next(filter(None, found), None)
    if path is None:
        text = f"CXX is {named}, which does not exist" if named else "no C++ compiler was found"
        return missing("compiler", text, "unset CXX" if named else install_command("g++"))
    return ok("compiler", f"{_version(path)} ({path})")


def build_tool(name: str, find: Callable[[], Path]) -> Finding:
    """Report the CMake or the Ninja that builds use."""
    try:
        path = find()
    except BuildError as error:
        return missing(name, error.message, error.hint or toolchain.TOOLS_HINT)
    return ok(name, f"{_version(str(path)).removeprefix('cmake version ')} ({path})")


def nvidia() -> Finding:
    """Report which CUDA toolkit builds use, or why none would do."""
    name, nvcc, driver, gpus = "CUDA", toolchain.nvcc(), cuda.find_driver(), toolchain.nvidia()
    if driver is None and gpus is None:
        if nvcc is None:
            return ok(name, "no NVIDIA toolkit or driver found")
        return remark(name, f"found {nvcc}, but no working driver", "install NVIDIA's driver")
    found = f"found {driver or 'a driver of unknown version'}"
    try:
        toolkit = cuda_toolkit.choose(gpus.architectures if gpus else ())
    except BuildError as error:
        return remark(name, f"{found}, but builds would not use the GPU: {error.message}", error.hint)
    if toolkit is not None:
        return ok(name, f"{found}; builds use CUDA {cuda.format_release(toolkit.release)} ({toolkit.nvcc})")
    wheels = "in this environment" if cuda.find_wheels() else "from the package index"
    beside = "" if nvcc is None else f", as {nvcc} does not suffice"
    return ok(
        name, f"{found}; builds use the wheels of CUDA {cuda.format_release(cuda.PINNED)} {wheels}{beside}"
    )


def examine_building() -> Iterator[Finding]:
    """Check the tools of a build."""
    yield compiler()
    yield build_tool("CMake", toolchain.cmake)
    yield build_tool("Ninja", partial(toolchain.tool, "ninja", hint=toolchain.TOOLS_HINT))
    yield nvidia()


def _version(program: str) -> str:
    with suppress(OSError):
        _, out, _ = proc.capture([program, "--version"], timeout_s=20)
        if out:
            return out.splitlines()[0]
    return "of unknown version"
