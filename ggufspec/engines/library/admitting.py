"""Whether the engine ``inprocess`` can use a library: by what it is, not by where it came from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ggufspec import proc, temporary
from ggufspec.engines.library.selftest import PASSED, PROBE
from ggufspec.engines.library.worker_process import worker_environment
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, find_library, packages, releases

_TIMEOUT_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"
_BUILD = f"`ggufspec build` makes one that fits; {_SERVER}"


def check_library(install: Install) -> Path:
    """Return the folder of an install's library.

    Raises:
        NoInstallError: there is no library beside the programs, it does not load, or its parameters are
            unknown.
    """
    file = find_library(install.library or install.root)
    if file is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    release = install.release or install.version or ""
    if releases.parts(release) is not None and not releases.has_library(release):
        raise NoInstallError(
            f"{file} is of {packages.NAME} {release}; "
            f"the engine inprocess needs {releases.OLDEST_LIBRARY} or newer",
            f"`ggufspec build` makes a newer one; {_SERVER}",
        )
    problem = None if install.release is not None else _problem(file)  # our builds are of known releases
    if problem is not None:
        raise NoInstallError(f"the engine inprocess cannot use {file}: {problem}", _BUILD)
    return file.parent


@cache
def _problem(file: Path) -> str | None:
    """Let a library compute in a separate process; return why it cannot be used."""
    with temporary.folder() as scratch:
        completed, out, _ = proc.capture(
            [*PROBE, str(file.parent)], env=worker_environment(scratch), cwd=scratch, timeout_s=_TIMEOUT_S
        )
    if completed.timed_out:
        return f"its test did not end within {_TIMEOUT_S:.0f} s"
    if completed.returncode != 0:
        return f"its test ended with {completed.signal or f'exit code {completed.returncode}'}"
    answer = (out.splitlines() or ["the test printed nothing"])[-1]  # a library may print, too
    return None if answer == PASSED else answer
