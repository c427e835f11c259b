"""Whether the engine ``inprocess`` can use a library: by what it computes, not by where it came from.

The library computes in a separate process, see ``selftest.py``. The answer is kept in the cache folder, under
the digest of the library's files and of what it was compared with.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ggufspec import digests, paths, proc, temporary
from ggufspec.domain import Method
from ggufspec.engines.library import selftest
from ggufspec.engines.library.llama_h import LAYOUTS
from ggufspec.engines.library.worker_process import worker_environment
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, find_library

_TIMEOUT_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"
_BUILD = f"`ggufspec build` makes one that fits; {_SERVER}"


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that computes what it should.

    Attributes:
        folder: where it is.
        heads: the methods whose heads it feeds with the target's states, through C++ names that no header
            promises.
    """

    folder: Path
    heads: frozenset[Method]


def check_library(install: Install) -> Library:
    """Return what an install's library can do.

    Raises:
        NoInstallError: there is no library beside the programs, it does not load, its parameters are unknown,
            or it computes something else.
    """
    file = find_library(install.library or install.root)
    if file is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    problem, heads = _examine(file)
    if problem is not None:
        raise NoInstallError(f"the engine inprocess cannot use {file}: {problem}", _BUILD)
    return Library(folder=file.parent, heads=frozenset(map(Method, heads)))


@cache
def _examine(file: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return why a library cannot be used, and the methods of the heads that it feeds."""
    kept = paths.cache_dir() / "libraries" / f"{_digest(file)}.json"
    with suppress(OSError, ValueError):
        problem, heads = json.loads(kept.read_text(encoding="utf-8"))
        return problem, tuple(heads)
    with temporary.folder() as scratch:
        completed, out, _ = proc.capture(
            [*selftest.PROGRAM, str(file.parent)],
            env=worker_environment(scratch),
            cwd=scratch,
            timeout_s=_TIMEOUT_S,
        )
    marked = [line for line in out.splitlines() if line.startswith(selftest.MARK)]  # a library prints, too
    answer, *heads = [line.removeprefix(selftest.MARK) for line in marked] or [""]
    if not answer and completed.timed_out:
        return f"its test did not end within {_TIMEOUT_S:.0f} s", ()
    if not answer:
        return f"its test ended with {completed.signal or f'exit code {completed.returncode}'}", ()
    problem = None if answer == selftest.PASSED else answer
    with suppress(OSError):  # without a cache, the test is made again
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_name(f"{kept.name}.{os.getpid()}")
        draft.write_text(json.dumps([problem, heads]), encoding="utf-8")
        draft.replace(kept)
    return problem, tuple(heads)


def _digest(file: Path) -> str:
    """Return what the answer depends on: the library, ggml's beside it, the known layouts, the test."""
    beside = sorted(path for path in file.parent.iterdir() if path.name.startswith(("libggml", "ggml")))
    files = (file, *beside, LAYOUTS, Path(selftest.__file__))
    contents = "".join(digests.of_file(path).sha256 for path in files if path.is_file())
    return hashlib.sha256(contents.encode()).hexdigest()
