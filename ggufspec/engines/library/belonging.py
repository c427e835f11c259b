"""Whether the library of an install matches the installed binding.

The binding describes llama.cpp's structs of one release. With a library whose structs differ, it silently
corrupts memory. A build that ggufspec made records its release. Any other build must come from the commit
that the binding's release carries; its parameters are then compared in a separate process, field by field.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from ggufspec import proc
from ggufspec.engines.library.commandline import binding_release
from ggufspec.engines.library.shapes import AGREES, PROBE
from ggufspec.engines.library.worker_process import worker_environment
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, find_library, releases, store

_RELEASE = re.compile(r"\d+\.\d+\.\d+")  # of llama-cpp-python, whose source is built
_NUMBER = re.compile(r"(?:^|\s)b(\d+)$")  # of llama.cpp, as its programs report it
_COMMIT = re.compile(r"[0-9a-f]{7,40}")  # shorter ones are ambiguous
_TIMEOUT_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"


def check_library(install: Install) -> Path:
    """Return the folder of an install's library.

    Raises:
        NoInstallError: there is none beside the programs, or it does not match the binding.
    """
    library = find_library(install.library or install.root)
    if library is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    problem = _mismatch(install, library)
    if problem is not None:
        raise NoInstallError(problem, f"`ggufspec build` makes a matching library; {_SERVER}")
    return library.parent


def _mismatch(install: Install, library: Path) -> str | None:
    """Return why a library cannot be used through the installed binding; None if it can."""
    binding = binding_release()
    mismatch = f"{library} does not match the installed llama-cpp-python {binding}"
    version = install.version or ""
    release = install.release or (version if _RELEASE.fullmatch(version) else None)
    if release is not None and release != binding:
        return f"{mismatch}: it is the library of {release}"
    if install.release == binding:
        return None
    if origin_problem := _compare_origin(install, binding):
        return f"{mismatch}: {origin_problem}"
    difference = _difference(library.parent)
    return None if difference is None else f"{mismatch}: {difference}"


def _compare_origin(install: Install, binding: str) -> str | None:
    """Return why an install was not built from the binding's source; None if it was."""
    commit, number = _commit(binding), releases.BUILDS.get(releases.parts(binding) or (0, 0, 0))
    reported = _NUMBER.search(install.version or "")
    if commit and install.commit:
        base = install.commit.removesuffix("-dirty")  # local changes: the parameters are compared anyway
        same = _COMMIT.fullmatch(base) and commit.startswith(base)
        return None if same else f"it is from commit {install.commit}, the binding from {commit[:9]}"
    if number and reported:
        same = int(reported[1]) == number
        return None if same else f"it is llama.cpp b{reported[1]}, the binding is for b{number}"
    if install.commit or reported:
        return f"the llama.cpp of the binding's release {binding} is unknown"
    return "its programs report neither a commit nor a build number"


def _commit(release: str) -> str | None:
    """Return the commit of llama.cpp that a release carries; None if neither a table nor a build knows it."""
    source = f"sdist {release}"
    built = (build.commit for build in store.installed() if build.source == source and build.commit)
    return releases.COMMITS.get(release) or next(built, None)


@cache
def _difference(folder: Path) -> str | None:
    """Compare a library's parameters with the binding's in a separate process; return the difference."""
    with tempfile.TemporaryDirectory(prefix="ggufspec-") as scratch:
        completed, out, _ = proc.capture(
            [*PROBE, str(folder)],
            env=worker_environment(Path(scratch)),
            cwd=Path(scratch),
            timeout_s=_TIMEOUT_S,
        )
    if completed.timed_out:
        return f"it did not load within {_TIMEOUT_S:.0f} s"
    if completed.returncode != 0:
        return f"it ended with {completed.signal or f'exit code {completed.returncode}'} when it was loaded"
    answer = (out.splitlines() or ["the check printed nothing"])[-1]  # a library may print, too
    return None if answer == AGREES else answer
