"""The disk under a bench: whole files in one step, whole lines at the end, one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ggufspec.errors import DiskFullError, ResultsError
from ggufspec.results.ledger import Ledger

_LOCK = "lock"


class Lock:
    """The right to write to a bench; ends with this object, ``release`` or the process, however it dies.

    As a context it is released by an exception only: afterwards a writer has it.

    Raises:
        ResultsError: another process, or another ResultSet of this one, has it.
        OSError: the lock's file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._close()
            raise ResultsError(
                f"the bench {folder.name} is being written already",
                "wait until the other process has ended, or start a bench of your own",
            ) from error

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.release()

    @property
    def held(self) -> bool:
        """Whether it has not been released yet."""
        return self._close.alive

    def release(self) -> None:
        """Let others write; a second call does nothing."""
        self._close()


@dataclass(kw_only=True)
class Writer:
    """Appends to one file of whole lines. ``size`` is how much of it is known to be good."""

    file: Path
    ledger: Ledger
    lock: Lock
    size: int = 0

    def append(self, lines: bytes) -> None:
        """Add whole lines and wait until they are on the disk; after a failure nothing was added."""
        with self.file.open("ab") as file:
            if file.tell() > self.size:  # what a failed write left behind
                file.truncate(self.size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        self.size += len(lines)


def whole_lines(content: bytes) -> bytes:
    """Return everything up to the last end of a line: what comes after it was cut short by a crash."""
    return content if content.endswith(b"\n") else content[: content.rfind(b"\n") + 1]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that at any instant the old one or the new one is there, also after a power cut."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Turn a full disk into its own error."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise ResultsError(
                f"cannot write to {folder}: {error.strerror}", "set GGUFSPEC_DATA to a writable folder"
            ) from error
        raise DiskFullError(
            f"no space left to store results in {folder}", "free some, or set GGUFSPEC_DATA to another disk"
        ) from error
