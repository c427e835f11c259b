"""The llama.cpp that is checked: prebuilt, found, or built from the source that was carried in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ggufspec import paths
from ggufspec.errors import BuildError, NoInstallError
from ggufspec.llama.install import installs
from ggufspec.llama.install.installs import Install

SOURCE = "llama.cpp.tar.xz"


def folder(named: Path | None, carry: Path, *, gpu: bool, seconds: float) -> Path:
    """Return the folder of the programs to check.

    Args:
        named: a folder of prebuilt ones; without it GGUFSPEC_LLAMA, then own builds, then a build now.
        carry: holds the source for that.
        gpu: whether they have to use a GPU.
        seconds: that a build may take.

    Raises:
        NoInstallError: there is none, and nothing to build one from; or it sees no GPU.
        BuildError: it could not be built in time.
    """
    chosen = named or (Path(value) if (value := os.environ.get("GGUFSPEC_LLAMA")) else None)
    if chosen is not None:
        found: Install | None = installs.find_install(chosen)
    else:
        fitting = (each for each in installs.survey_installs()[0] if each.gpu is not False or not gpu)
        found = next(fitting, None)
        if found is None and (carry / SOURCE).is_file():
            found = _build(carry / SOURCE, gpu=gpu, seconds=seconds)
    if found is None:
        raise NoInstallError(
            "there is no llama.cpp here" + (" that uses a GPU" if gpu else ""),
            "name one with --bin, or carry its source in: scripts/gpu_check.sh --pack FOLDER",
        )
    if gpu and not found.devices:
        raise NoInstallError(f"the llama.cpp in {found.root} sees no GPU", "check a CPU with --cpu")
    return found.root


def adopt(named: Path, cache: Path) -> None:
    """Let a build of ours that was carried in count as one here: then its library is known as well."""
    build = next((each for each in (named, named.parent) if (each / "build.json").is_file()), None)
    if build is None or build.resolve().parent == paths.builds_dir().resolve():
        return
    os.environ["GGUFSPEC_CACHE"] = str(cache)
    place = paths.builds_dir() / build.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(build.resolve())


def _build(source: Path, *, gpu: bool, seconds: float) -> Install:
    words = ["build", "--source", str(source), "--backend", "cuda" if gpu else "cpu"]
    command = [sys.executable, "-m", "ggufspec", *words, "--jobs", str(os.cpu_count() or 1)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildError(
            f"building took longer than {seconds:.0f} s", "build elsewhere and name the folder with --bin"
        ) from error
    if done.returncode:
        raise BuildError("llama.cpp could not be built", "what was said above tells why")
    return installs.find_install(Path(done.stdout.strip().splitlines()[-1]))
