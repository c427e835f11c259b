"""The disk under a bench: complete files in one step, complete lines at the end, one process at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ggufspec.errors import DiskFullError, ResultsError
from ggufspec.results import records, seals
from ggufspec.results.ledger import Ledger

_LOCK = "lock"


class Lock:
    """The right to write to a bench; ends with this object, ``release`` or the process, however it ends.

    As a context it is released by an exception only: afterwards a writer has it. filelock does not tell which
    file it has locked, and a lock whose file was removed keeps nobody else from locking a new one.

    Raises:
        ResultsError: another process, or another ResultSet of this one, has it.
        OSError: the lock's file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / _LOCK
        while True:
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o666)
            self._close = weakref.finalize(self, os.close, self._descriptor)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                self._close()
                raise ResultsError(
                    f"the bench {folder.name} is being written already",
                    "wait until the other process has ended, or start a bench of your own",
                ) from error
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
        """Let others write; a second call does nothing."""
        self._close()

    def check(self) -> None:
        """Raise where the lock's file was removed: somebody else may have locked another one since.

        Raises:
            ResultsError: it was removed or replaced.
        """
        if not self._is_in_place():
            raise ResultsError(
                f"the lock of the bench {self._file.parent.name} was removed while it was written",
                "nothing that was stored is lost; go on with --resume once no other process writes to it",
            )

    def _is_in_place(self) -> bool:
        return _is_at(self._file, os.fstat(self._descriptor))


@dataclass(kw_only=True)
class Writer:
    """Appends to one file of complete lines.

    ``size`` is how many of its bytes are undamaged lines, ``checksum`` theirs. ``end`` is how many bytes it
    has; None after a failed write, of which any part may be there.
    """

    file: Path
    ledger: Ledger
    lock: Lock
    checksum: int
    size: int = 0
    end: int | None = 0
    _identity: os.stat_result = field(init=False)

    def __post_init__(self) -> None:
        """Remember which file it is."""
        self._identity = self.file.stat()

    def append(self, contents: Sequence[bytes]) -> None:
        """Add JSON objects as lines, and wait until they are on the disk; after a failure none was added.

        Raises:
            ResultsError: somebody else changed, replaced or removed the file, or the lock's.
        """
        lines, checksum = seals.seal_all(contents, self.checksum)
        with self._open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # from the look at the lock to the end of the write
            self.lock.check()
            size = self._check(file)
            self.end = None
            if size > self.size:  # what a crash or a failed write left behind
                file.truncate(self.size)
            file.seek(self.size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            self.size, self.checksum = self.size + len(lines), checksum
            self.end = self.size
            self._check(file)

    def check(self) -> None:
        """Raise where something that was appended is not there any more.

        Raises:
            ResultsError: somebody else changed, replaced or removed the file, or the lock's.
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
            ResultsError: it is not the file that was opened first, or not as long as it was left.
        """
        status = os.fstat(file.fileno())
        if not (os.path.samestat(status, self._identity) and _is_at(self.file, status)):
            raise self._changed("was removed or replaced")
        if status.st_size < self.size:
            raise self._changed(f"was cut from {self.size} to {status.st_size} bytes")
        if self.end is not None and status.st_size > self.end:
            file.seek(self.end)
            if b"\n" in file.read():  # else it is the beginning of a line, which nobody can have read
                raise self._changed(f"has grown from {self.end} to {status.st_size} bytes")
        return status.st_size

    def _changed(self, what: str) -> ResultsError:
        return ResultsError(
            f"{self.file} {what} by another program while the bench was written",
            "nothing more is stored; see what is left with `ggufspec show`",
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
