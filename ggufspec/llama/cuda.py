"""NVIDIA's driver, and CUDA's compiler and libraries as wheels from the package index.

There are two ways to get the wheels. The extra ``ggufspec[cuda-build]`` installs them into the Python
environment, so that no network is needed later. Without it pip installs them into the cache folder and checks
the hashes that the index lists. Both use the same requirement: NVIDIA's meta-package ``cuda-toolkit``, whose
releases pin matching wheels, so that no table of versions is needed here.

Only CUDA 13 is available as wheels: those for CUDA 12 (``nvidia-cuda-nvcc-cu12``) contain ptxas, but no nvcc.
The first release is used for every driver: drivers run what an older toolkit of their major version compiled,
PTX included, but older drivers cannot translate a newer toolkit's PTX. Another installed release is used,
too.
"""

from __future__ import annotations

import base64
import csv
import ctypes
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import filelock

from ggufspec import paths, proc
from ggufspec.errors import BuildError
from ggufspec.llama.install import contents
from ggufspec.llama.install.contents import FileRecord
from ggufspec.llama.source import index
from ggufspec.steps import BuildProgress, BuildStep, relay

Release = tuple[int, int]
"""A version of CUDA: (13, 0)."""

PINNED: Release = (13, 0)
"""The CUDA of the wheels."""

_SMI = re.compile(r"Driver Version: *([\d.]+) +CUDA (?:UMD )?Version: *(\d+)\.(\d+)")
_DRIVER_LIBRARY = "libcuda.so.1"
_DRIVER_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
)

REQUIREMENT = f"cuda-toolkit[cccl,crt,cublas,cudart,nvcc,nvvm]=={PINNED[0]}.{PINNED[1]}.*"
EXTRA = "ggufspec[cuda-build]"
LIBRARIES = ("nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvrtc")
"""The wheels whose libraries the compiled programs load."""

_BY_RELEASE = ("nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-cccl", LIBRARIES[0])
_BY_MAJOR = ("nvidia-cublas",)  # its minor version differs from CUDA's
_OPTIONAL = ("nvidia-cuda-nvrtc",)  # cuBLAS loads it for a few kernels, and requires it from 13.1 on
_TOOLKIT_FOLDERS = {"bin", "include", "lib", "nvvm"}
_SIZE = "0.6 GB"
_SHA256 = "sha256="  # prefix of a hash in RECORD; base64 follows (PEP 376)

LICENCES = "licenses"
"""The folder beside the programs with the licences of copied libraries."""

_VERSIONED = re.compile(r"^(lib\w+\.so)\.\d")
_LOADED = re.compile(r"^lib/(lib(?:cudart|cublas|cublasLt|nvrtc|nvrtc-builtins)\.so\.[\d.]+)$")


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
        library = ctypes.CDLL(_DRIVER_LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int(0)  # 13000 is CUDA 13.0
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0 or not number.value:
        return None
    return Driver(version=None, supports=(number.value // 1000, number.value % 1000 // 10))


def find_driver_library(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the driver's library, which programs for CUDA may be linked against; None without one."""
    named = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    candidates = (Path(folder) / _DRIVER_LIBRARY for folder in (*filter(None, named), *_DRIVER_FOLDERS))
    return next((path for path in candidates if path.exists()), None)


def format_release(release: Release) -> str:
    """Return a version of CUDA as text: "13.0"."""
    return f"{release[0]}.{release[1]}"


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """A set of matching wheels.

    ``files`` maps a path within a toolkit, such as "bin/nvcc" or "lib/libcublas.so.13", to the file.
    ``licences`` maps a wheel's name to its licence files.
    """

    release: Release
    files: Mapping[str, Path]
    licences: Mapping[str, tuple[Path, ...]]


def wheels_suit(driver: Driver | None) -> bool:
    """Whether a driver runs what the wheels compile; None means that it runs on another machine."""
    return sys.platform == "linux" and (driver is None or driver.supports >= PINNED)


def find_wheels(folder: Path | None = None) -> Wheels | None:
    """Return the set of wheels in a folder, or in this Python environment; None unless it is complete.

    Args:
        folder: a folder that pip has installed into, or None for the environment.
    """
    wheels = _wheels(folder)
    if not wheels.keys() >= {*_BY_RELEASE, *_BY_MAJOR}:
        return None
    releases = {_release(wheels[name]) for name in _BY_RELEASE}
    majors = {_release(wheel)[0] for wheel in wheels.values()}
    if len(releases) > 1 or len(majors) > 1:
        return None  # wheels that other packages require, and that do not match
    files: dict[str, Path] = {}
    for wheel in wheels.values():
        for path in wheel.files or ():
            if path.parts[0] == "nvidia" and len(path.parts) > 3 and path.parts[2] in _TOOLKIT_FOLDERS:
                files["/".join(path.parts[2:])] = Path(str(wheel.locate_file(path)))
    if "bin/nvcc" not in files or not files["bin/nvcc"].is_file():
        return None
    licences = {name: _licences(wheel) for name, wheel in wheels.items()}
    return Wheels(release=releases.pop(), files=files, licences=licences)


def find_wheel_damage(folder: Path | None = None) -> str | None:
    """Return what is wrong with the first file that differs from its wheel's RECORD; None if none does.

    Args:
        folder: as for ``find_wheels``, which found a set there.
    """
    for name, wheel in _wheels(folder).items():
        rows = [row for row in csv.reader((wheel.read_text("RECORD") or "").splitlines()) if len(row) == 3]
        if not any(path.endswith(".dist-info/RECORD") for path, _, _ in rows):
            return f"{name}: its RECORD is cut short"  # it lists itself, near its end
        recorded = {
            path: FileRecord(size_bytes=int(size), sha256=_hexadecimal(sha256))
            for path, sha256, size in rows
            if path.startswith("nvidia/") and size.isdecimal()
        }
        if damage := contents.find_damage(Path(str(wheel.locate_file(""))), recorded):
            return f"{name}: {damage}"
    return None


def _hexadecimal(sha256: str) -> str | None:
    """Return a hash of a RECORD, which is base64 without its padding, as ``contents`` writes it."""
    if not sha256.startswith(_SHA256):
        return None
    return base64.urlsafe_b64decode(sha256.removeprefix(_SHA256) + "=").hex()


def _wheels(folder: Path | None) -> dict[str, metadata.Distribution]:
    """Return the installed wheels of the set, by name."""
    where = [str(folder)] if folder else sys.path
    names = (*_BY_RELEASE, *_BY_MAJOR, *_OPTIONAL)
    wheels = {name: next(iter(metadata.distributions(name=name, path=where)), None) for name in names}
    return {name: wheel for name, wheel in wheels.items() if wheel is not None and wheel.files}


def provide_wheels(log: Path) -> Generator[BuildProgress, None, Wheels]:
    """Return the wheels of this environment, else those in the cache folder; download them if necessary.

    Args:
        log: pip's output is appended here.

    Raises:
        BuildError: they are not available.
    """
    if installed := find_wheels():
        if damage := find_wheel_damage():
            raise BuildError(
                f"CUDA's compiler in this Python environment is damaged: {damage}",
                f"install it again: pip install --force-reinstall '{EXTRA}'",
            )
        return installed
    home = paths.cache_dir() / "cuda" / format_release(PINNED)
    home.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(home.with_name(f".{home.name}.lock")):
        kept = find_wheels(home)
        damage = find_wheel_damage(home) if kept else None
        if kept and damage is None:
            return kept
        if damage is not None:
            yield BuildProgress(step=BuildStep.FETCH, line=f"fetched again, because of {damage}", notice=True)
        size = f"CUDA {format_release(PINNED)}'s compiler and libraries come from the package index ({_SIZE})"
        yield BuildProgress(step=BuildStep.FETCH, line=size, notice=True)
        partial = home.with_name(f".{home.name}.partial")
        for folder in (partial, home):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            yield from _install(partial, log)
            contents.sync(partial)
            partial.rename(home)
            paths.sync(home.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    fetched = find_wheels(home)
    if fetched is None:
        raise _unavailable(f"{REQUIREMENT} did not install a complete set")
    return fetched


def _install(into: Path, log: Path) -> Generator[BuildProgress, None, None]:
    completed = yield from relay(
        proc.stream(_words(into), log=log, env=index.installer_environment()),
        lambda line: BuildProgress(step=BuildStep.FETCH, line=line),
    )
    if completed.returncode != 0:
        lines = [line.strip() for line in completed.tail if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        raise _unavailable((errors or lines or [f"pip exited with {completed.returncode}"])[-1])


def _words(into: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-input"]
        quiet = ["--no-cache-dir", "--no-compile", "--progress-bar=off", "--only-binary=:all:"]
        return [*pip, *quiet, "--target", str(into), REQUIREMENT]
    if uv := shutil.which("uv"):
        words = [uv, "pip", "install", "--python", sys.executable, "--only-binary", ":all:"]
        return [*words, "--target", str(into), REQUIREMENT]
    raise _unavailable("neither pip nor uv is installed")


def _unavailable(reason: str) -> BuildError:
    return BuildError(
        f"CUDA's compiler is not available from the package index: {reason}",
        f"check the network and PIP_INDEX_URL, pip install '{EXTRA}' beforehand, or install the CUDA toolkit",
    )


def _licences(wheel: metadata.Distribution) -> tuple[Path, ...]:
    names = ("license", "licence", "notice", "copying")
    return tuple(
        Path(str(wheel.locate_file(path)))
        for path in wheel.files or ()
        if ".dist-info" in path.parts[0] and path.name.lower().startswith(names)
    )


def _release(wheel: metadata.Distribution) -> Release:
    major, minor = wheel.version.split(".")[:2]
    return int(major), int(minor)


def assemble(wheels: Wheels, root: Path, driver: Path | None) -> None:
    """Assemble a toolkit, as CMake and nvcc expect it, in a folder that does not exist yet.

    bin/ nvvm/     hard links, or copies: nvcc looks for its parts beside its real path
    include/       symbolic links to the headers of all wheels
    lib64/         symbolic links; libcublas.so beside libcublas.so.13, as the linker wants it
    lib64/stubs/   the driver's library, if there is one

    Args:
        wheels: their files must not move while the toolkit is used.
        root: becomes ``CUDAToolkit_ROOT``.
        driver: the driver's library, or None.
    """
    for relative, file in wheels.files.items():
        folder, _, rest = relative.partition("/")
        target = root / ("lib64" if folder == "lib" else folder) / rest
        target.parent.mkdir(parents=True, exist_ok=True)
        if folder in {"bin", "nvvm"}:
            _link(file, target)
        else:
            target.symlink_to(file)
    libraries = root / "lib64"
    for path in sorted(libraries.iterdir()):
        match = _VERSIONED.match(path.name)
        if match and not (libraries / match[1]).exists():
            (libraries / match[1]).symlink_to(path.name)
    (root / "lib").symlink_to("lib64")
    if driver is not None:
        (libraries / "stubs").mkdir()
        (libraries / "stubs" / "libcuda.so").symlink_to(driver)


def copy_libraries(wheels: Wheels, into: Path) -> None:
    """Copy the libraries that programs load to their folder, with the licences that allow it.

    Args:
        wheels: contain the libraries.
        into: the folder of the programs, in which they look for libraries.
    """
    for relative, file in wheels.files.items():
        if match := _LOADED.match(relative):
            _link(file, into / match[1])
    for name in wheels.licences.keys() & {*LIBRARIES}:
        folder = into / LICENCES / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in wheels.licences[name]:
            _link(file, folder / file.name)


def _link(file: Path, target: Path) -> None:
    """Make a hard link, which stays if the first file is removed; copy if links are not possible."""
    target.unlink(missing_ok=True)
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copy2(file, target)
