"""The CUDA toolkit for a build: the machine's own if it is complete and fits, else one made of wheels."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain
from ggufspec.llama.cuda import Driver, Release, Wheels, assemble, format_release
from ggufspec.steps import BuildProgress

_FIRST_FOR: Mapping[int, Release] = {89: (11, 8), 90: (11, 8), 100: (12, 8), 120: (12, 8)}
"""Compute capability -> the first CUDA that compiles for it (CUDA's release notes)."""

_ALL_BUT_OLD: tuple[int, int] = (13, 75)
"""CUDA 13 compiles for nothing older than compute capability 7.5."""

_FIRST_WITH_CPP17: Release = (11, 0)  # llama.cpp's CUDA code is C++17
_NVCC = re.compile(r"release (\d+)\.(\d+)")
_ARCHITECTURE = re.compile(r"compute_(\d+)")
_NEWEST_GCC = re.compile(r"__GNUC__ > (\d+)")
_HEADERS = ("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")
_DEBIAN = Path("/usr")  # its package keeps headers and libraries among all others


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """A CUDA toolkit.

    ``home`` contains bin, include and lib64; None if only the compiler was found.
    ``wheels``: the wheels it was made of; None for a toolkit of the machine.
    ``links_driver``: whether there is a libcuda to link against.
    """

    nvcc: Path
    release: Release
    home: Path | None
    wheels: Wheels | None = None
    links_driver: bool = True


def provide(architectures: Sequence[str], work: Path, log: Path) -> Generator[BuildProgress, None, Toolkit]:
    """Return a toolkit that compiles for these architectures and this driver.

    Args:
        architectures: as CMake spells them; empty leaves them to llama.cpp.
        work: a toolkit of wheels is made in its folder ``cuda``.
        log: pip's output is appended here.

    Raises:
        BuildError: there is none, or it does not match the driver, the GPUs or the C++ compiler.
    """
    toolkit = choose(architectures)
    if toolkit is None:
        wheels = yield from cuda.provide_wheels(log)
        library = cuda.find_driver_library()
        home = work / "cuda"
        shutil.rmtree(home, ignore_errors=True)
        assemble(wheels, home, library)
        toolkit = Toolkit(
            nvcc=home / "bin" / "nvcc",
            release=wheels.release,
            home=home,
            wheels=wheels,
            links_driver=library is not None,
        )
        _check(toolkit, architectures, cuda.find_driver())
    return toolkit


def choose(architectures: Sequence[str]) -> Toolkit | None:
    """Return the machine's own toolkit; None where one of wheels is made for these architectures.

    Raises:
        BuildError: neither would do.
    """
    driver, toolkit = cuda.find_driver(), system()
    if toolkit is None or (not fits(toolkit.release, architectures) and fits(cuda.PINNED, architectures)):
        if not cuda.wheels_suit(driver):
            raise _no_wheels(driver)
        return None
    _check(toolkit, architectures, driver)
    return toolkit


def system() -> Toolkit | None:
    """Return the machine's own toolkit; None unless compiler, headers and cuBLAS are all there."""
    nvcc = toolchain.nvcc()
    if nvcc is None:
        return None
    told = _NVCC.search(proc.capture([str(nvcc), "--version"])[1])
    release = (int(told[1]), int(told[2])) if told else None
    homes = [home for home in (toolchain.cuda_home(), nvcc.resolve().parent.parent, _DEBIAN) if home]
    home = next((home for home in homes if _header(home, "cublas_v2.h")), None)
    if release is None or release < _FIRST_WITH_CPP17 or home is None:
        return None
    return Toolkit(nvcc=nvcc, release=release, home=toolchain.cuda_home())


def fits(release: Release, architectures: Iterable[str]) -> bool:
    """Whether a toolkit compiles for all these architectures, according to CUDA's release notes."""
    return all(
        release >= max((first for least, first in _FIRST_FOR.items() if least <= number), default=(0, 0))
        and not (release[0] >= _ALL_BUT_OLD[0] and number < _ALL_BUT_OLD[1])
        for number in _numbers(architectures)
    )


def _no_wheels(driver: Driver | None) -> BuildError:
    if driver is None:
        return BuildError("no CUDA toolkit was found, and its wheels are for Linux", "use another --backend")
    return BuildError(
        f"no suitable CUDA toolkit was found, and {driver} is older than the wheels, which start at CUDA "
        f"{format_release(cuda.PINNED)}",
        f"update the driver to 580 or newer, or install the CUDA {format_release(driver.supports)} toolkit",
    )


def _check(toolkit: Toolkit, architectures: Sequence[str], driver: Driver | None) -> None:
    """Raise a BuildError where a toolkit does not match the driver, the GPUs or the C++ compiler."""
    if driver is not None and toolkit.release[0] > driver.supports[0]:
        raise BuildError(
            f"{driver} is older than the toolkit, CUDA {format_release(toolkit.release)}: "
            "its programs would not run",
            f"update the driver, or use a toolkit of CUDA {driver.supports[0]}.x, at best "
            f"{format_release(driver.supports)}",
        )
    if "native" in architectures and toolchain.nvidia() is None:
        raise BuildError(
            'the architecture is "native", but this machine has no GPU',
            "name it: --cuda-arch 90 (H100, H200), 89 (RTX 40), 86 (RTX 30), 80 (A100)",
        )
    listed = _ARCHITECTURE.findall(proc.capture([str(toolkit.nvcc), "--list-gpu-arch"])[1])
    unknown = [str(number) for number in _numbers(architectures) if str(number) not in listed]
    if listed and unknown:
        article = "an older" if int(unknown[0]) < min(map(int, listed)) else "a newer"
        raise BuildError(
            f"CUDA {format_release(toolkit.release)} does not compile for architecture {', '.join(unknown)}; "
            f"it knows {', '.join(dict.fromkeys(listed))}",
            f"name one of them with --cuda-arch, or use {article} CUDA toolkit",
        )
    _check_host_compiler(toolkit)


def _check_host_compiler(toolkit: Toolkit) -> None:
    config = _header(toolkit.home, "crt/host_config.h") if toolkit.home else None
    newest = _NEWEST_GCC.search(config.read_text(errors="replace")) if config else None
    named = os.environ.get("CUDAHOSTCXX") or os.environ.get("NVCC_CCBIN") or "g++"
    compiler = shutil.which(named)
    if newest is None or compiler is None or "clang" in named:
        return
    version = proc.capture([compiler, "-dumpfullversion", "-dumpversion"])[1].strip()
    if not version or int(version.split(".")[0]) <= int(newest[1]):
        return
    older = (shutil.which(f"g++-{number}") for number in range(int(newest[1]), 6, -1))
    installed = next(filter(None, older), None)
    fix = f"set CUDAHOSTCXX={installed or f'g++-{newest[1]}'}"
    raise BuildError(
        f"CUDA {format_release(toolkit.release)} supports GCC up to {newest[1]}, "
        f"but {named} is GCC {version}",
        fix if installed else f"apt install g++-{newest[1]}; then {fix}",
    )


def _header(home: Path, name: str) -> Path | None:
    return next((path for folder in _HEADERS if (path := home / folder / name).is_file()), None)


def _numbers(architectures: Iterable[str]) -> list[int]:
    """Return the compute capabilities in CMake's architectures; "native" and "all" have none."""
    return [int(match[0]) for word in architectures if (match := re.match(r"\d+", word))]
