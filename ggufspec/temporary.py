"""Temporary folders, below TMPDIR. Those that a killed process left are removed when the next one makes one.

A folder is locked while its process lives: the kernel ends the lock with it, also in another container that
shares the folder, where a process id would say nothing.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ggufspec import paths
from ggufspec.errors import DiskFullError, GgufspecError

PREFIX = "ggufspec-"
_YOUNG_S = 60.0  # a folder may not have its lock yet
_PROBE_BYTES = 1 << 16


@contextmanager
def folder() -> Iterator[Path]:
    """Make an empty folder, and remove it at the end.

    Raises:
        DiskFullError: there is no room for it, or for what was written into it.
        GgufspecError: it cannot be made, or was removed meanwhile.
    """
    parent = Path(tempfile.gettempdir())
    try:
        _remove_stale(parent)
        made = tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True)
        lock = os.open(made.name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _explain(error, parent) from error
    try:
        with suppress(OSError):  # some network file systems have no locks: what is left there stays
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with made as name:
            try:
                yield Path(name)
            except OSError as error:
                problem = _find_problem(Path(name))
                if problem is None:
                    raise
                raise _explain(problem, parent) from error
    finally:
        os.close(lock)


def _find_problem(scratch: Path) -> OSError | None:
    """Return why nothing can be written into a folder; None if something can."""
    probe = scratch / ".room"
    try:
        probe.write_bytes(bytes(_PROBE_BYTES))
        probe.unlink()
    except OSError as problem:
        return problem
    return None


def _explain(error: OSError, parent: Path) -> GgufspecError:
    reason, hint = paths.explain(error, parent, "TMPDIR")
    error_class = DiskFullError if error.errno in paths.NO_ROOM else GgufspecError
    set_by = "from TMPDIR" if os.environ.get("TMPDIR") else "the system's"
    return error_class(f"cannot write to {parent}, the folder of temporary files ({set_by}): {reason}", hint)


@functools.cache
def _remove_stale(parent: Path) -> None:
    """Remove the folders of this user's processes that were killed."""
    for left in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = left.lstat()
            is_old = time.time() - status.st_mtime > _YOUNG_S
            if status.st_uid == os.getuid() and is_old and not left.is_symlink() and left.is_dir():
                _remove_unlocked(left)


def _remove_unlocked(left: Path) -> None:
    descriptor = os.open(left, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(descriptor)
