"""A CUDA toolkit as CMake and nvcc expect it, made of links into wheels; and what programs need of it later.

bin/ nvvm/     hard links, or copies: nvcc looks for its own parts beside its real path
include/       symbolic links to the headers of all wheels
lib64/         symbolic links; libcublas.so beside libcublas.so.13, as the linker wants it
lib64/stubs/   the driver's library, where there is one
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from ggufspec.llama.cuda.wheels import LIBRARIES, Wheels

LICENCES = "licenses"
"""The folder beside the programs with the licences of the libraries that came along."""

_VERSIONED = re.compile(r"^(lib\w+\.so)\.\d")
_LOADED = re.compile(r"^lib/(lib(?:cudart|cublas|cublasLt|nvrtc|nvrtc-builtins)\.so\.[\d.]+)$")


def assemble(wheels: Wheels, root: Path, driver: Path | None) -> None:
    """Make a toolkit in a folder that does not exist yet.

    Args:
        wheels: what it is made of; must stay where it is as long as the toolkit is used.
        root: becomes ``CUDAToolkit_ROOT``.
        driver: the driver's library, or None.
    """
    for place, file in wheels.files.items():
        kind, _, rest = place.partition("/")
        target = root / ("lib64" if kind == "lib" else kind) / rest
        target.parent.mkdir(parents=True, exist_ok=True)
        if kind in {"bin", "nvvm"}:
            _bring(file, target)
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


def bring_libraries(wheels: Wheels, into: Path) -> None:
    """Put the libraries that programs load beside them, with the licences under which they may be there.

    Args:
        wheels: where they are.
        into: the folder of the programs, which look for libraries beside themselves.
    """
    for place, file in wheels.files.items():
        if match := _LOADED.match(place):
            _bring(file, into / match[1])
    for name in wheels.licences.keys() & {*LIBRARIES}:
        folder = into / LICENCES / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in wheels.licences[name]:
            _bring(file, folder / file.name)


def _bring(file: Path, target: Path) -> None:
    """Link a file to a second place, which keeps it when the first is removed; copy where links do not go."""
    target.unlink(missing_ok=True)
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copy2(file, target)
