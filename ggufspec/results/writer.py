"""Write to a bench: replace files in one step, append complete lines, one process at a time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from filelock import lock_descriptor

from ggufspec import paths
from ggufspec.errors import DiskFullError, ResultsError
from ggufspec.results import records, seals
from ggufspec.results.records import Ledger

_LOCK = "lock"
T = TypeVar("T")


class Lock:
    """The lock for writing to a bench; it ends with this object, with ``release`` or with the process.

    A ``with`` block releases it only on an exception, because otherwise a writer keeps it. The descriptor is
    kept here, not in a ``FileLock``, because ``check`` compares the locked file with the file of that name:
    if that was removed, another process can lock a new one.

    Raises:
        ResultsError: another process, or another ResultSet of this process, has the lock.
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
                    "wait for the other process, or start a new bench",
                )
            if self._is_in_place():
                return
            self._close()  # its file was removed between the two calls

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is not None:
            self.release()

    @property
    def held(self) -> bool:
        """Whether it has not been released yet."""
        return self._close.alive

    def release(self) -> None:
        """Let other processes write; a second call does nothing."""
        self._close()

    def check(self) -> None:
        """Raise if the lock's file was removed, because another process may have locked a new one.

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
class LineWriter:
    """Appends to one file of complete lines.

    Attributes:
        file: the file, which exists.
        lock: the lock of the bench.
        checksum: of the first ``size`` bytes.
        size: bytes of undamaged lines at the file's start.
        end: size of the file; None where a part of a line may follow: after a failed write or a crash.
    """

    file: Path
    lock: Lock
    checksum: int
    size: int = 0
    end: int | None = 0
    _identity: os.stat_result = field(init=False)

    def __post_init__(self) -> None:
        """Remember the file's identity."""
        self._identity = self.file.stat()

    def append(self, contents: Sequence[bytes]) -> None:
        """Append JSON objects as lines, and wait until they are on the disk; a failure adds none.

        Raises:
            ResultsError: another program changed, replaced or removed the file, or the lock's.
        """
        lines, checksum = seals.seal_all(contents, self.checksum)
        with self._open() as file:
            lock_descriptor(file.fileno())  # from the check of the bench's lock to the end of the write
            self.lock.check()
            size = self._check(file)
            self.end = None
            if size > self.size:  # a part of a line, left by a crash or a failed write
                file.truncate(self.size)
            file.seek(self.size)
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
            self.size, self.checksum = self.size + len(lines), checksum
            self.end = self.size
            self._check(file)

    def check(self) -> None:
        """Raise if appended lines are missing.

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
            if b"\n" in file.read():  # otherwise a part of a line, which readers ignore
                raise self._changed(f"grew from {self.end} to {status.st_size} bytes")
        return status.st_size

    def _changed(self, change: str) -> ResultsError:
        return ResultsError(
            f"{self.file} {change} by another program while the bench was written",
            "no more results are stored; `ggufspec show` prints the stored ones",
        )


@dataclass(kw_only=True)
class Writer(LineWriter):
    """Appends to the runs of a bench; ``ledger`` has its records in memory."""

    ledger: Ledger


def _is_at(path: Path, status: os.stat_result) -> bool:
    """Whether a path names an open file."""
    try:
        return os.path.samestat(path.stat(), status)
    except OSError:
        return False


def write_object(path: Path, value: object, *, makes_folder: bool = False) -> None:
    """Write a value as a JSON file with its checksum, in one step.

    Args:
        path: of the file.
        value: what it will hold.
        makes_folder: whether its folder is made, too. That of a bench is not: a removed one stays removed.

    Raises:
        ResultsError: a number is not finite, or it cannot be written.
        DiskFullError: the disk is full.
    """
    with disk(path.parent):
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, seals.seal(records.encode_checked(value), 0)[0])


def read_object(path: Path) -> bytes:
    """Return the content of such a file.

    Raises:
        ResultsError: it does not match its checksum.
        OSError: it cannot be read.
    """
    content = path.read_bytes()
    if seals.follow(content, 0) is None:
        raise ResultsError(f"{path} does not match its checksum", "it is damaged or was edited")
    return content


def refuse_newer(what: object, version: int, newest: int) -> None:
    """Make sure that this ggufspec knows the version of a format.

    Raises:
        ResultsError: it is newer than ``newest``.
    """
    if version > newest:
        raise ResultsError(
            f"{what} was written by a newer ggufspec (schema {version})", "upgrade ggufspec to read it"
        )


def read_value(path: Path, expected: type[T]) -> T | None:
    """Return the value of such a file; None where there is none, a damaged one, or another version's."""
    try:
        return msgspec.json.decode(read_object(path), type=expected, dec_hook=records.decode_hook)
    except (OSError, ValueError, ResultsError):  # msgspec's errors are ValueErrors
        return None


class _Versioned(msgspec.Struct):
    schema_version: int = 0


def read_stored(file: Path, expected: type[T], what: str, *, newest: int, remedy: str) -> T:
    """Return the value of such a file, which exists.

    Args:
        file: its path.
        expected: the type of its value.
        what: what it should be, as messages say it.
        newest: the version of its format that is known here; 0 for one without versions.
        remedy: how to have it again.

    Raises:
        ResultsError: it cannot be read, it was edited or damaged, or a newer ggufspec wrote it.
    """
    hint = f"it was edited or damaged: {remedy}"
    try:
        content = file.read_bytes()
        refuse_newer(file, msgspec.json.decode(content, type=_Versioned).schema_version, newest)
        if seals.follow(content, 0) is None:
            raise ResultsError(f"{file} does not match its checksum", hint)
        return msgspec.json.decode(content, type=expected, dec_hook=records.decode_hook)
    except OSError as error:
        raise ResultsError(f"cannot read {file}: {error.strerror}", "check its permissions") from error
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise ResultsError(f"{file} is not {what}: {error}", hint) from error


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step: after a crash or a power cut, the complete old or new file remains."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    paths.sync(path.parent)


@contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Convert errors of the disk to DiskFullError and ResultsError."""
    try:
        yield
    except OSError as error:
        reason, hint = paths.explain(error, folder, "GGUFSPEC_DATA")
        if error.errno not in paths.NO_ROOM:
            raise ResultsError(f"cannot write to {folder}: {reason}", hint) from error
        raise DiskFullError(f"no space left to store results in {folder}", hint) from error
