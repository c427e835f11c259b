"""Writing to a bench: files replaced in one step, complete lines appended, one process at a time."""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from filelock import lock_descriptor

from ggufspec import paths
from ggufspec.errors import DiskFullError, ResultsError
from ggufspec.results import records, seals
from ggufspec.results.ledger import Ledger

_LOCK = "lock"


class Lock:
    """The right to write to a bench; ends with this object, ``release`` or the process, however it ends.

    As a context it is released by an exception only: afterwards a writer has it. The descriptor is kept here,
    not in a ``FileLock``, because ``check`` must compare the locked file with the one that has its name now:
    where the file was removed, another process can lock a new one.

    Raises:
        ResultsError: another process, or another ResultSet of this one, has it.
        OSError: the lock's file cannot be made or locked.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _LOCK
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
            self._close = weakref.finalize(self, os.close, self._descriptor)
            if not lock_descriptor(self._descriptor, blocking=False):
                self._close()
                raise ResultsError(
                    f"the bench {folder.name} is already being written",
                    "wait until the other process has ended, or start a new bench",
                )
            if self._is_in_place():
                return
            self._close()  # its file was removed between the two calls

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
        """Let other processes write; a second call does nothing."""
        self._close()

    def check(self) -> None:
        """Raise if the lock's file was removed: another process may have locked a new one.

        Raises:
            ResultsError: it was removed or replaced.
        """
        if not self._is_in_place():
            raise ResultsError(
                f"the lock of the bench {self._file.parent.name} was removed while it was written",
                "stored results are not lost; continue with --resume once no other process writes to it",
            )

    def _is_in_place(self) -> bool:
        return _is_at(self._file, os.fstat(self._descriptor))


@dataclass(kw_only=True)
class Writer:
    """Appends to one file of complete lines.

    Attributes:
        file: the file, which exists.
        ledger: its records in memory.
        lock: the right to write.
        checksum: of the first ``size`` bytes.
        size: bytes of undamaged lines at the file's start.
        end: bytes of the file; None after a failed write, of which any part may be in the file.
    """

    file: Path
    ledger: Ledger
    lock: Lock
    checksum: int
    size: int = 0
    end: int | None = 0
    _identity: os.stat_result = field(init=False)

    def __post_init__(self) -> None:
        """Remember the file's identity."""
        self._identity = self.file.stat()

    def append(self, contents: Sequence[bytes]) -> None:
        """Add JSON objects as lines, and wait until they are on the disk; after a failure none was added.

        Raises:
            ResultsError: another program changed, replaced or removed the file, or the lock's.
        """
        lines, checksum = seals.seal_all(contents, self.checksum)
        with self._open() as file:
            lock_descriptor(file.fileno())  # from the check of the bench's lock to the end of the write
            self.lock.check()
            size = self._check(file)
            self.end = None
            if size > self.size:  # a crash or a failed write left a part of a line
                file.truncate(self.size)
            file.seek(self.size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            self.size, self.checksum = self.size + len(lines), checksum
            self.end = self.size
            self._check(file)

    def check(self) -> None:
        """Raise if anything that was appended is missing.

        Raises:
            ResultsError: another program changed, replaced or removed the file, or the lock's.
        """
        with self._open() as file:
            self.lock.check()
            self._check(file)

    def _open(self) -> IO[bytes]:
        try:
            return self.file.open("r+b")
        except FileNotFoundError as error:
            raise self._changed("was removed") from error

    def _check(self, file: IO[bytes]) -> int:
        """Return the file's size.

        Raises:
            ResultsError: it is not the file that was opened first, or another program changed its length.
        """
        status = os.fstat(file.fileno())
        if not (os.path.samestat(status, self._identity) and _is_at(self.file, status)):
            raise self._changed("was removed or replaced")
        if status.st_size < self.size:
            raise self._changed(f"was cut from {self.size} to {status.st_size} bytes")
        if self.end is not None and status.st_size > self.end:
            file.seek(self.end)
            if b"\n" in file.read():  # otherwise the start of a line, which no reader takes
                raise self._changed(f"has grown from {self.end} to {status.st_size} bytes")
        return status.st_size

    def _changed(self, change: str) -> ResultsError:
        return ResultsError(
            f"{self.file} {change} by another program while the bench was written",
            "no more results are stored; `ggufspec show` prints the stored ones",
        )


def _is_at(path: Path, status: os.stat_result) -> bool:
    """Whether a path names an open file."""
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False


def write_object(path: Path, value: object) -> None:
    """Write a value as a file of JSON with its checksum, in one step.

    Raises:
        ResultsError: it holds a number that is not finite.
        OSError: it cannot be written.
    """
    replace_file(path, seals.seal(records.encode_checked(value), 0)[0])


def read_object(path: Path) -> bytes:
    """Return the JSON of such a file, or of an older one without a checksum.

    Raises:
        ResultsError: it does not match its checksum.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    if seals.has_seal(content) and seals.follow(content, 0) is None:
        raise ResultsError(f"{path} does not match its checksum", "it was damaged or edited")
    return content


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: after a crash or a power cut the old or the new one is there, complete."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    paths.sync(path.parent)


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Raise DiskFullError where the disk is full, ResultsError for other errors of the disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise ResultsError(
                f"cannot write to {folder}: {error.strerror}", "set GGUFSPEC_DATA to a writable folder"
            ) from error
        raise DiskFullError(
            f"no space left to store results in {folder}",
            "free some space, or set GGUFSPEC_DATA to a folder on another disk",
        ) from error
