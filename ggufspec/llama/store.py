"""The folder of builds: each complete or absent, side by side, safe against builds at the same time.

builds/<key>/bin/          programs and libraries
builds/<key>/build.json    what it is; written last, before the folder gets its name
builds/<key>/build.log     what the compilers said
builds/.work/<key>/        a build in progress, cleaned up by whoever next holds its lock
builds/.locks/<key>.lock   held while that key is built
builds/.logs/<key>.log     the log of a build that failed
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock

from ggufspec import paths
from ggufspec.errors import BuildError
from ggufspec.llama import toolchain

MANIFEST = "build.json"
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Built:
    """A finished build of our own.

    ``bin`` holds the programs; ``lib`` the shared libraries, as LLAMA_CPP_LIB_PATH wants it. They are the
    same folder. ``note`` is what a user should know, such as a feature that was left out. ``cpu`` is what
    the machine must have for the programs to run.
    """

    path: Path
    bin: Path
    lib: Path
    version: str
    backend: str
    source: str
    commit: str | None
    options: tuple[str, ...]
    built_at: str
    note: str | None
    cpu: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs, in alphabetical order."""
        libraries = re.compile(r"\.(?:so|dylib)(?:\.|$)")
        files = (path for path in self.bin.iterdir() if path.is_file())
        return tuple(sorted(path.name for path in files if not libraries.search(path.name)))


def key(label: str, backend: str, facts: Iterable[str]) -> str:
    """Return the folder name of a build: readable, with a digest of all that decides what is built."""
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
    return f"{label}-{backend}-{digest}"


def find(name: str) -> Built | None:
    """Return a finished build by its key; None when it is absent, broken or for another processor."""
    return _read(paths.builds_dir() / name)


def installed() -> list[Built]:
    """Return every build that runs on this machine, newest first; broken folders do not count."""
    root = paths.builds_dir()
    folders = sorted(root.iterdir()) if root.is_dir() else []
    found = [built for folder in folders if not folder.name.startswith(".") and (built := _read(folder))]
    return sorted(found, key=lambda built: built.built_at, reverse=True)


def remove(version: str | None, backend: str | None) -> list[Built]:
    """Remove the builds of a version, a backend or both; return what was removed.

    Raises:
        BuildError: a folder is not one of ours, or is being built.
    """
    removed = []
    for built in installed():
        if version not in {None, built.version} or backend not in {None, built.backend}:
            continue
        if built.path.is_symlink() or built.path.parent != paths.builds_dir():
            raise BuildError(f"{built.path} is not a folder of our own", "remove it by hand")
        with try_lock(built.path.name) as locked:
            if not locked:
                raise BuildError(f"{built.path.name} is being built", "wait for it, then try again")
            shutil.rmtree(workplace(built.path.name))
            built.path.rename(workplace(built.path.name))  # gone at once; emptied when the lock is released
        removed.append(built)
    return removed


@contextmanager
def try_lock(name: str) -> Iterator[bool]:
    """Take a key's lock if nobody has it; its work folder is then empty and ours until the end."""
    root = paths.builds_dir()
    (root / ".locks").mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(root / ".locks" / f"{name}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        yield False
        return
    try:
        _clear(workplace(name))
        yield True
    finally:
        shutil.rmtree(workplace(name), ignore_errors=True)
        lock.release()


def sweep() -> None:
    """Remove what builds that died have left behind; builds that live hold their locks."""
    work = paths.builds_dir() / ".work"
    for folder in list(work.iterdir()) if work.is_dir() else []:
        with try_lock(folder.name):
            pass


def workplace(name: str) -> Path:
    """Return the folder to build in; the caller holds the key's lock."""
    return paths.builds_dir() / ".work" / name


def log_path(name: str) -> Path:
    """Return where a build's log is written, and stays if the build fails."""
    folder = paths.builds_dir() / ".logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def publish(name: str, folder: Path, built: Built, log: Path) -> Built:
    """Give a finished folder its final name, in one step; the caller holds the key's lock.

    Args:
        name: the build's key.
        folder: holds ``bin``; lies in the work folder, on the same file system.
        built: what it is; its paths are those of the final place.
        log: is moved into the folder.
    """
    facts = {field: value for field, value in asdict(built).items() if field not in {"path", "bin", "lib"}}
    log.replace(folder / "build.log")
    (folder / MANIFEST).write_text(json.dumps({"schema": _SCHEMA, **facts}, indent=2) + "\n")
    if built.path.exists():  # broken, or find() would have returned it
        built.path.rename(folder.with_name("replaced"))
    folder.rename(built.path)
    return built


def place(name: str) -> Path:
    """Return where a build with this key is, or will be."""
    return paths.builds_dir() / name


def _read(folder: Path) -> Built | None:
    try:
        facts = json.loads((folder / MANIFEST).read_text())
        if facts.pop("schema") != _SCHEMA:
            return None
        built = Built(
            path=folder,
            bin=folder / "bin",
            lib=folder / "bin",
            **facts | {"options": tuple(facts["options"]), "cpu": tuple(facts["cpu"])},
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return built if toolchain.machine() >= set(built.cpu) and built.bin.is_dir() else None


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
