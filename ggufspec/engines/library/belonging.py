"""Which Python binding matches the library of an install.

A binding describes llama.cpp's structs of one release. With a library whose structs differ, it silently
corrupts memory. A build that ggufspec made has the binding of its own source, and llama-cpp-python's wheel
holds both. For any other llama.cpp, a binding of the same commit is looked for; the library's parameters are
then compared with it in a separate process, field by field, as they are for a package whose files changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from ggufspec import proc, temporary
from ggufspec.engines.library.commandline import format_library
from ggufspec.engines.library.messages import Library
from ggufspec.engines.library.shapes import AGREES, PROBE
from ggufspec.engines.library.worker_process import worker_environment
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, binding_files, find_library, packages, releases, store

_RELEASE = re.compile(r"\d+\.\d+\.\d+")  # of llama-cpp-python, whose source is built
_NUMBER = re.compile(r"(?:^|\s)b(\d+)$")  # of llama.cpp, as its programs report it
_COMMIT = re.compile(r"[0-9a-f]{7,40}")  # shorter ones are ambiguous
_TIMEOUT_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"
_BUILD = f"`ggufspec build` makes a library with its binding; {_SERVER}"


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The Python binding of a build or of the installed llama-cpp-python.

    ``release`` is None for a build from a folder, ``commit`` where it is unknown.
    """

    folder: Path
    release: str | None
    commit: str | None

    def __str__(self) -> str:
        return f"{packages.NAME} {self.release}" if self.release else str(self.folder)


def check_library(install: Install) -> Library:
    """Return an install's library and the Python binding for it.

    Raises:
        NoInstallError: there is no library beside the programs, or no binding that matches it.
    """
    file = find_library(install.library or install.root)
    if file is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    version = install.version or ""
    release = install.release or (version if _RELEASE.fullmatch(version) else None)
    if release is not None and not releases.has_binding(release):
        raise NoInstallError(
            f"{file} is of {packages.NAME} {release}; "
            f"the engine inprocess needs {releases.OLDEST_BINDING} or newer",
            f"`ggufspec build` makes a newer one; {_SERVER}",
        )
    if install.binding is not None:
        library = Library(folder=file.parent, binding=install.binding)
        is_own_build = install.release is not None or bool(install.programs)
        is_of_one_source = is_own_build or packages.is_as_installed(install.binding)
        return library if is_of_one_source else _compared(library)
    if install.release is not None:
        return Library(folder=file.parent, binding=_binding_of_release(install, install.release))
    beside = binding_files.find_binding(file.parent)
    if beside is not None:  # a copy of a build
        return _compared(Library(folder=file.parent, binding=beside))
    problems: list[str] = []
    for binding in _bindings():
        problem = _compare_origin(install, binding)
        if problem is None:
            return _compared(Library(folder=file.parent, binding=binding.folder))
        problems.append(f"{file} does not match the Python binding of {binding}: {problem}")
    raise NoInstallError("; ".join(problems) or f"no Python binding for {file} is here", _BUILD)


def _binding_of_release(install: Install, release: str) -> Path:
    """Return the binding for an install of a release that does not contain its binding."""
    folder = next((binding.folder for binding in _bindings() if binding.release == release), None)
    if folder is None:
        command = f"ggufspec build --version {release} --backend {install.backend}"
        raise NoInstallError(
            f"the engine inprocess needs the Python binding of {install.root}, which is not in it",
            f"`{command}` adds it without compiling again; {_SERVER}",
        )
    return folder


def _bindings() -> Iterator[Binding]:
    """Yield the bindings of our own builds, newest first, then that of an installed llama-cpp-python."""
    for built in store.installed():
        if built.binding is not None:
            release = built.version if built.source.startswith("sdist ") else None
            yield Binding(folder=built.binding, release=release, commit=built.commit)
    try:
        package = metadata.distribution(packages.NAME)
    except metadata.PackageNotFoundError:
        return
    folder = binding_files.find_binding(Path(str(package.locate_file("."))))
    if folder is not None and releases.has_binding(package.version):
        commit = releases.COMMITS.get(package.version)
        yield Binding(folder=folder, release=package.version, commit=commit)


def _compare_origin(install: Install, binding: Binding) -> str | None:
    """Return why an install was not built from a binding's source; None if it was."""
    number = releases.BUILDS.get(releases.parts(binding.release or "") or (0, 0, 0))
    reported = _NUMBER.search(install.version or "")
    if binding.commit and install.commit:
        base = install.commit.removesuffix("-dirty")  # local changes: the parameters are compared anyway
        same = _COMMIT.fullmatch(base) and binding.commit.startswith(base)
        return None if same else f"it is from commit {install.commit}, the binding from {binding.commit[:9]}"
    if number and reported:
        same = int(reported[1]) == number
        return None if same else f"it is llama.cpp b{reported[1]}, the binding is for b{number}"
    if install.commit or reported:
        return "the llama.cpp of the binding's release is unknown"
    return "its programs report neither a commit nor a build number"


def _compared(library: Library) -> Library:
    """Return a library whose parameters agree with a binding's.

    Raises:
        NoInstallError: they do not.
    """
    difference = _difference(library)
    if difference is not None:
        reason = f"{library.folder} does not match the Python binding in {library.binding}: {difference}"
        raise NoInstallError(reason, _BUILD)
    return library


@cache
def _difference(library: Library) -> str | None:
    """Compare a library's parameters with the binding's in a separate process; return the difference."""
    with temporary.folder() as scratch:
        completed, out, _ = proc.capture(
            [*PROBE, *format_library(library)],
            env=worker_environment(scratch),
            cwd=scratch,
            timeout_s=_TIMEOUT_S,
        )
    if completed.timed_out:
        return f"it did not load within {_TIMEOUT_S:.0f} s"
    if completed.returncode != 0:
        return f"it ended with {completed.signal or f'exit code {completed.returncode}'} when it was loaded"
    answer = (out.splitlines() or ["the check printed nothing"])[-1]  # a library may print, too
    return None if answer == AGREES else answer
