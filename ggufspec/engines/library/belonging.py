"""Whether the library of an install may be used through the installed binding.

The binding describes llama.cpp's structs as they were in one release, and a library with other ones corrupts
memory in silence. A build of our own says from which release it was made. Any other has to come from the
commit that the binding's release carries, and is then looked at in a process of its own, field by field.
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

_RELEASE = re.compile(r"\d+\.\d+\.\d+")  # of llama-cpp-python, whose sources we build
_NUMBER = re.compile(r"(?:^|\s)b(\d+)$")  # of llama.cpp, as its programs report it
_COMMIT = re.compile(r"[0-9a-f]{7,40}")  # shorter ones could be any
_PATIENCE_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"


def check_library(install: Install) -> Path:
    """Return the folder of an install's library.

    Raises:
        NoInstallError: there is none beside the programs, or it cannot be used through the binding.
    """
    library = find_library(install.library or install.root)
    if library is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    problem = _mismatch(install, library)
    if problem is not None:
        raise NoInstallError(problem, f"`ggufspec build` makes a library that does; {_SERVER}")
    return library.parent


def _mismatch(install: Install, library: Path) -> str | None:
    """Return why a library cannot be used through the installed binding; None if it can."""
    binding = binding_release()
    mismatch = f"{library} does not belong to the installed llama-cpp-python {binding}"
    version = install.version or ""
    release = install.release or (version if _RELEASE.fullmatch(version) else None)
    if release is not None and release != binding:
        return f"{mismatch}, which cannot use the library of {release}"
    if install.release == binding:
        return None
    if stranger := _stranger(install, binding):
        return f"{mismatch}: {stranger}"
    difference = _difference(library.parent)
    return None if difference is None else f"{mismatch}: {difference}"


def _stranger(install: Install, binding: str) -> str | None:
    """Return why an install that we did not build is not of the binding's source; None if it is."""
    commit, number = _commit(binding), releases.BUILDS.get(releases.parts(binding) or (0, 0, 0))
    reported = _NUMBER.search(install.version or "")
    if commit and install.commit:
        base = install.commit.removesuffix("-dirty")  # changed since: its shape is looked at anyway
        same = _COMMIT.fullmatch(base) and commit.startswith(base)
        return None if same else f"it is of commit {install.commit}, the binding of {commit[:9]}"
    if number and reported:
        same = int(reported[1]) == number
        return None if same else f"it is llama.cpp b{reported[1]}, the binding's is b{number}"
    if install.commit or reported:
        return f"which llama.cpp the binding's release {binding} carries is not known here"
    return "its programs tell neither commit nor build number"


def _commit(release: str) -> str | None:
    """Return the commit of llama.cpp that a release carries, if this code or a build of ours knows it."""
    source = f"sdist {release}"
    built = (build.commit for build in store.installed() if build.source == source and build.commit)
    return releases.COMMITS.get(release) or next(built, None)


@cache
def _difference(folder: Path) -> str | None:
    """Return how a library's parameters differ from the binding's, after a look in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="ggufspec-") as scratch:
        completed, out, _ = proc.capture(
            [*PROBE, str(folder)],
            env=worker_environment(Path(scratch)),
            cwd=Path(scratch),
            timeout_s=_PATIENCE_S,
        )
    if completed.timed_out:
        return f"it did not load within {_PATIENCE_S:.0f} s"
    if completed.returncode != 0:
        return (
            f"it ended with {completed.signal or f'exit code {completed.returncode}'} when it was looked at"
        )
    answer = (out.splitlines() or ["nothing was answered"])[-1]  # a library may print, too
    return None if answer == AGREES else answer
