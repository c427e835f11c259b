"""llama-cpp-python as it is installed: its own library.

A package that cannot be used is refused by name. One that was installed without its library is no llama.cpp.
"""

from __future__ import annotations

import csv
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version

from ggufspec.llama.install import contents, library, options, releases
from ggufspec.llama.install.environment import capture_program
from ggufspec.llama.install.store import Skipped

NAME = "llama-cpp-python"

_PACKAGE = "llama_cpp"
_FOLDER = "lib"  # in the package
_INITIAL = "__init__.py"
_LIBRARY = re.compile(r".+\.(?:so|dylib)(?:\.[\d.]+)?")
_INSTALL = f"pip install --force-reinstall {NAME}"


@dataclass(frozen=True, kw_only=True)
class Package:
    """An installed llama-cpp-python whose library loads.

    Attributes:
        folder: of the package.
        library: the folder of its libraries.
        version: as it was released, such as ``0.3.36`` or ``0.3.16+cu124``.
        devices: the GPUs that its library lists.
    """

    folder: Path
    library: Path
    version: str
    devices: tuple[options.ListedDevice, ...] = ()

    @property
    def release(self) -> str:
        """The version without a builder's own suffix."""
        return Version(self.version).base_version


def find_package() -> Package | Skipped | None:
    """Return the llama-cpp-python beside this ggufspec, or why it is not used; None without a library."""
    try:
        distribution = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return None
    folder = Path(str(distribution.locate_file(_PACKAGE)))
    has_library = (folder / _FOLDER).is_dir() or bool(_recorded(distribution))
    return _examine(folder, distribution) if has_library else None


def find_package_in(path: Path) -> Package | Skipped | None:
    """Return the llama-cpp-python whose folder, or folder of libraries, is given, or why it is not used."""
    folder = path.parent if path.name == _FOLDER else path
    if folder.name != _PACKAGE or not (folder / _INITIAL).is_file():
        return None
    return _examine(folder, next(iter(metadata.distributions(name=NAME, path=[str(folder.parent)])), None))


def _examine(folder: Path, distribution: metadata.Distribution | None) -> Package | Skipped:
    def refuse(reason: str, command: str = _INSTALL) -> Skipped:
        return Skipped(
            path=folder, reason=f"{NAME} {version}{reason}", command=command, is_damaged=False, origin=NAME
        )

    version = "" if distribution is None else distribution.version
    recorded = [] if distribution is None else _recorded(distribution)
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return refuse("without its metadata is only half installed")
    if not releases.has_library(release):
        return refuse(
            f" is older than {releases.OLDEST_LIBRARY}, the first that can be used with its own library",
            f"pip install --upgrade {NAME}",
        )
    absent = next((name for name in recorded if not (folder.parent / name).exists()), None)
    if absent is not None:
        return refuse(f" is only half installed: {absent} is missing")
    file = library.in_folder(folder / _FOLDER, "libllama")
    if file is None:
        return refuse(" was installed without its library")
    damage = contents.find_cut_short(file.parent)
    if damage is not None:
        return refuse(f" is only half installed: {damage}")
    listed = _ask_library(file)
    if isinstance(listed, str):
        return refuse(f" has a library that does not load here: {listed}")
    return Package(folder=folder, library=file.parent, version=version, devices=listed)


def _recorded(distribution: metadata.Distribution) -> list[str]:
    """Return the paths in site-packages of the libraries that a wheel held, also of those that are missing.

    Empty where the installer wrote no RECORD (Python Packaging User Guide, "Recording installed projects").
    """
    folders = {(_PACKAGE,), (_PACKAGE, _FOLDER)}  # older releases have no folder for libraries
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines())
    files = [PurePosixPath(row[0]) for row in rows if row]
    return [str(file) for file in files if file.parts[:-1] in folders and _LIBRARY.fullmatch(file.name)]


def _ask_library(file: Path) -> tuple[options.ListedDevice, ...] | str:
    """Return the GPUs that a library lists, or why it does not load."""
    completed, out, err = capture_program([sys.executable, "-I", str(Path(library.__file__)), str(file)])
    if completed.returncode == 0:
        return options.parse_devices(out)
    if completed.timed_out:
        return "it did not answer in time"
    return completed.signal or (err.strip().splitlines() or [f"exit code {completed.returncode}"])[-1]
