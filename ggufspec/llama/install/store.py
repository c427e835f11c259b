"""The folder of builds: each build is complete or absent; several may run at once.

builds/<key>/bin/          programs and libraries
builds/<key>/build.json    its properties and files; written last, before the folder gets its name
builds/<key>/build.log     the output of the compilers
builds/.work/<key>/        a build in progress, cleaned up by the next holder of its lock
builds/.locks/<key>.lock   held while that key is built
builds/.logs/<key>.log     the log of a build that failed
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import filelock
import msgspec

from ggufspec import paths
from ggufspec.choices import Backend
from ggufspec.errors import BuildError
from ggufspec.llama.install import contents, environment
from ggufspec.llama.install.contents import FileRecord

MANIFEST = "build.json"
OWN_BUILD = "own build"
"""The origin of builds of our own; others are named after where they were found."""

_SCHEMA = 2
_ARCHITECTURES = "CMAKE_CUDA_ARCHITECTURES="
_LIBRARY = re.compile(r"\.(?:so|dylib)(?:\.|$)")


@dataclass(frozen=True, kw_only=True)
class Built:
    """A finished build of our own.

    ``note`` is for the user, such as a feature that was left out. ``cpu`` holds the processor
    features that the programs need, ``added`` the options of CMake that the user added to ``options``.
    ``environment`` holds the variables that were set for the build and may have changed it, ``files`` what
    ``bin`` held when it was made.
    """

    path: Path
    version: str
    backend: str
    source: str
    commit: str | None
    options: tuple[str, ...]
    built_at: str
    note: str | None
    cpu: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, FileRecord] = field(default_factory=dict, hash=False)

    @property
    def bin(self) -> Path:
        """The folder of its programs and shared libraries."""
        return self.path / "bin"

    @property
    def summary(self) -> str:
        """What was built, in a few words."""
        return f"llama.cpp {self.version} ({self.backend})"

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs, in alphabetical order."""
        files = (path for path in self.bin.iterdir() if path.is_file())
        return tuple(sorted(path.name for path in files if not _LIBRARY.search(path.name)))

    @property
    def has_rpc(self) -> bool:
        """Whether models can be spread over workers on other machines."""
        return not {"GGML_RPC=ON", "LLAMA_RPC=ON"}.isdisjoint(self.options)

    @property
    def command(self) -> str:
        """The command that builds it again."""
        source_type, _, rest = self.source.partition(" ")
        if source_type == "git":
            url, _, ref = rest.rpartition(" ")
            words = ["--source", f"git+{url}", "--version", ref]
        elif source_type == "release":
            words = ["--prebuilt", "--version", rest]
        else:
            words = ["--version", rest] if source_type == "sdist" else ["--source", "PATH"]
        words += ["--backend", self.backend]
        architectures = (option.removeprefix(_ARCHITECTURES) for option in self.options)
        for named in set(architectures) - {*self.options}:
            words += ["--cuda-arch", named.replace(";", ",")]
        words += [f"--cmake=-D{definition}" for definition in self.added]
        return f"ggufspec build {shlex.join(words)}"


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A folder among the builds that is not used, or an installed package.

    ``command`` builds it again, or installs it. ``is_damaged`` is False if a build is intact, but for another
    machine, and for a package. ``built`` is None if the manifest cannot be read. ``origin`` is that of an
    install, see there.
    """

    path: Path
    reason: str
    command: str
    is_damaged: bool = True
    built: Built | None = None
    origin: str = OWN_BUILD

    @property
    def remedy(self) -> str:
        """What the command does."""
        return f"`{self.command}` {'builds it again' if self.origin == OWN_BUILD else 'installs it again'}"

    def __str__(self) -> str:
        return f"{self.path} is not used: {self.reason}; {self.remedy}"


def key(label: str, backend: str, facts: Iterable[str]) -> str:
    """Return the folder name of a build: readable, with a digest of everything that changes the build."""
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
    return f"{label}-{backend}-{digest}"


def find_build(name: str) -> Built | None:
    """Return a finished build by its key; None when it is absent, damaged or for another processor."""
    built = examine(place(name))
    return built if isinstance(built, Built) else None


def examine(folder: Path) -> Built | Skipped | None:
    """Return the build in a folder, or why it is not used; None without a folder.

    Every program and library is compared with what was recorded when it was made.
    """
    if not folder.is_dir():
        return None
    built = _read(folder)
    if built is None:
        return Skipped(path=folder, reason=f"its {MANIFEST} cannot be read", command=_command(folder.name))
    lacking = set(built.cpu) - environment.target()
    if lacking:
        reason = f"it was compiled for a processor with {', '.join(sorted(lacking))}"
        return Skipped(path=folder, reason=reason, command=built.command, is_damaged=False, built=built)
    is_there = built.bin.is_dir()
    damage = contents.find_damage(built.bin, built.files) if is_there else "its programs are missing"
    if damage is not None:
        return Skipped(path=folder, reason=damage, command=built.command, built=built)
    return built


def survey_builds() -> list[Built | Skipped]:
    """Return every build, in the order of their names: those that can be used and those that cannot."""
    return list(filter(None, map(examine, _folders())))


def read_manifests() -> dict[Path, Built | None]:
    """Return what is said of every build, by its folder, without a look at its files.

    That is None where a manifest cannot be read.
    """
    return {folder: _read(folder) for folder in _folders()}


def installed() -> list[Built]:
    """Return every build that runs on this machine, newest first; damaged ones do not count."""
    intact = [build for build in survey_builds() if isinstance(build, Built)]
    return sorted(intact, key=lambda built: built.built_at, reverse=True)


def delete(folder: Path) -> None:
    """Remove one folder of the builds, whatever it contains.

    Raises:
        BuildError: it is not one of ours, or is being built.
    """
    if folder.is_symlink() or folder.parent != paths.builds_dir():
        raise BuildError(f"{folder} is not a build of ggufspec", "remove it by hand")
    with try_lock(folder.name) as locked:
        if not locked:
            raise BuildError(f"{folder.name} is being built", "wait for it, then try again")
        shutil.rmtree(workplace(folder.name))
        folder.rename(workplace(folder.name))  # gone at once; emptied when the lock is released


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Lock a key if its lock is free, and yield whether it was; its work folder is then empty."""
    root = paths.builds_dir()
    (root / ".locks").mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(root / ".locks" / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        yield False
        return
    try:
        shutil.rmtree(workplace(name), ignore_errors=True)
        workplace(name).mkdir(parents=True)
        yield True
    finally:
        shutil.rmtree(workplace(name), ignore_errors=True)
        lock.release()


def sweep() -> None:
    """Remove what killed builds have left; running builds hold their locks."""
    work = paths.builds_dir() / ".work"
    for folder in list(work.iterdir()) if work.is_dir() else []:
        with try_lock(folder.name):
            pass


def workplace(name: str) -> Path:
    """Return the folder to build in; the caller holds the key's lock."""
    return paths.builds_dir() / ".work" / name


def log_path(name: str) -> Path:
    """Return the path of a build's log, which is kept if the build fails."""
    folder = paths.builds_dir() / ".logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def publish(name: str, folder: Path, built: Built, log: Path) -> Built:
    """Give a finished folder its final name, in one step; the caller holds the key's lock.

    Everything is on the disk before the folder gets its name: after a crash a build is complete or absent.

    Args:
        name: the build's key.
        folder: contains ``bin``; in the work folder, on the same file system.
        built: what it is; its paths are those of the final place.
        log: is moved into the folder.
    """
    log.replace(folder / "build.log")
    built = replace(built, files=contents.record(folder / "bin"))
    _write(folder, built)
    contents.sync(folder)
    if built.path.exists():  # damaged, otherwise find_build() would have returned it
        built.path.rename(folder.with_name("replaced"))
    folder.rename(built.path)
    paths.sync(built.path.parent)
    return built


def record_files(built: Built) -> Built:
    """Record the files of a build as they are now, after one was replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    built = replace(built, files=contents.record(built.bin))
    _write(built.path, built)
    return built


def place(name: str) -> Path:
    """Return where a build with this key is, or will be."""
    return paths.builds_dir() / name


def _folders() -> list[Path]:
    root = paths.builds_dir()
    folders = sorted(root.iterdir()) if root.is_dir() else []
    return [folder for folder in folders if not folder.name.startswith(".") and folder.is_dir()]


def _write(folder: Path, built: Built) -> None:
    """Write what a build is; where it is, its folder tells."""
    facts = msgspec.to_builtins(built, enc_hook=str)
    del facts["path"]
    paths.write_atomically(folder / MANIFEST, json.dumps({"schema": _SCHEMA, **facts}, indent=2) + "\n")


def _read(folder: Path) -> Built | None:
    """Return the build that a folder's manifest describes, without checking its files."""
    try:
        facts = msgspec.json.decode((folder / MANIFEST).read_bytes())
        if facts.pop("schema") != _SCHEMA:
            return None
        built = msgspec.convert({**facts, "path": folder}, Built)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return built if built.files else None


def _command(name: str) -> str:
    """Guess the command for a build without a manifest from the name of its folder."""
    version, backend, _ = (*name.rsplit("-", 2), "", "")[:3]
    backends = {backend.value for backend in Backend}
    if backend not in backends or version.startswith("local-"):
        return "ggufspec build"
    return f"ggufspec build --version {version} --backend {backend}"
