"""The files that users name: settings, pairs, prompts and keys are read, tables and pages are written.

A pipe or a device in their place would be waited for without end, or would fill the memory.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ggufspec import paths, units
from ggufspec.errors import DiskFullError, GgufspecError

MOST_BYTES = 64 << 20
"""The most that is read of one file: every one of them is written by people, or holds prompts."""

# How a shell names a stream that is open already: ``-f /dev/stdin``, and ``-f <(COMMAND)`` as /dev/fd/63.
_STREAM = re.compile(r"/dev/stdin|/dev/fd/\d+|/proc/self/fd/\d+")
_streams: dict[str, bytes] = {}  # a stream can be read once, and a command may ask for its prompts again


class UnsuitableFileError(OSError):
    """A file is not a regular one, or is too large; ``strerror`` says which."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(errno.EINVAL, reason, str(path))


def check_regular(path: Path) -> None:
    """Make sure that a path names a regular file.

    Raises:
        OSError: it does not; ``strerror`` says what it is.
    """
    _check_kind(path.stat(), path)


def read(path: Path, *, most_bytes: int = MOST_BYTES, streams: bool = False) -> bytes:
    """Return the content of a file that a user named.

    Args:
        path: of the file.
        most_bytes: a larger file is refused.
        streams: read /dev/stdin and the shell's ``<(COMMAND)``, too, to their end.

    Raises:
        OSError: it cannot be read, is not a regular file, or is too large; ``strerror`` says which.
    """
    if streams and _STREAM.fullmatch(str(path)):
        if str(path) not in _streams:
            with path.open("rb") as file:
                _streams[str(path)] = _read_limited(file.read(most_bytes + 1), most_bytes, path)
        return _streams[str(path)]
    # Without O_NONBLOCK, opening a pipe waits until another process writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        _check_kind(os.fstat(file.fileno()), path)
        return _read_limited(file.read(most_bytes + 1), most_bytes, path)


def load(
    path: Path, hint: str, *, noun: str | None = None, most_bytes: int = MOST_BYTES, streams: bool = False
) -> bytes:
    """Return the content of a file that a user named, as ``read`` does.

    Args:
        path: of the file.
        hint: what to do where it cannot be read.
        noun: what the file is called in messages; None for its path.
        most_bytes: as for ``read``.
        streams: as for ``read``.

    Raises:
        GgufspecError: it cannot be read.
    """
    try:
        return read(path, most_bytes=most_bytes, streams=streams)
    except OSError as error:
        raise GgufspecError(f"cannot read {noun or path}: {error.strerror}", hint) from error


def read_text(path: Path, *, most_bytes: int = MOST_BYTES, streams: bool = False) -> str:
    """Return a UTF-8 file as text.

    Args:
        path: of the file.
        most_bytes: as for ``read``.
        streams: as for ``read``.

    Raises:
        OSError: as for ``read``, or it is not UTF-8; ``strerror`` says which.
    """
    try:
        return read(path, most_bytes=most_bytes, streams=streams).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnsuitableFileError("it is not UTF-8 text", path) from error


def check_writable(file: Path) -> None:
    """Check that a file can be written, before anything is computed for it.

    Raises:
        GgufspecError: its folder does not exist, or the file or folder is not writable.
    """
    folder = file.parent
    try:
        if not folder.is_dir():
            raise GgufspecError(
                f"cannot write {file}: there is no folder {folder}",
                f"create it (mkdir -p {shlex.quote(str(folder))}), or choose another file",
            )
        is_new = not file.exists()
        if is_new or file.is_file():  # opening a pipe would end whoever reads from it
            file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise GgufspecError(f"cannot write {file}: {error.strerror}", "choose another file") from error


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn the system's errors from writing a file or a folder into our own.

    Raises:
        DiskFullError: the disk is full.
        GgufspecError: writing failed for another reason.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # its reader has ended, which is no error
    except OSError as error:
        raise writing_error(
            error, f"cannot write {place}: {error.strerror}", "choose another --out"
        ) from error


def writing_error(error: OSError, message: str, hint: str) -> GgufspecError:
    """Return our error for one of the system's: of its own class where the disk is full."""
    if error.errno == errno.EFBIG:
        return GgufspecError(message, paths.FILE_LIMIT_HINT)
    return (DiskFullError if error.errno in paths.NO_ROOM else GgufspecError)(message, hint)


@contextmanager
def making(what: str) -> Iterator[None]:
    """Turn the error of a disk that gets full while something is made in the cache folder into our own.

    Raises:
        DiskFullError: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno in paths.NO_ROOM:
            hint = "free some disk space, or set GGUFSPEC_CACHE"
            raise DiskFullError(f"no room to {what}", hint) from error
        raise


def require_room(needs: str, needed_bytes: int, folder: Path, free_bytes: int, hint: str) -> None:
    """Refuse early what would fill a disk.

    Args:
        needs: what needs the space, up to the number: "the download needs".
        needed_bytes: how much.
        folder: where.
        free_bytes: how much is free there.
        hint: what to do.

    Raises:
        DiskFullError: there is less.
    """
    if free_bytes < needed_bytes:
        needed, free = map(units.format_bytes, (needed_bytes, free_bytes))
        raise DiskFullError(f"{needs} {needed}, but {folder} has only {free} free", hint)


def _check_kind(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnsuitableFileError("it is not a regular file", path)


def _read_limited(content: bytes, most_bytes: int, path: Path) -> bytes:
    if len(content) > most_bytes:
        raise UnsuitableFileError(f"it is larger than {units.format_bytes(most_bytes)}", path)
    return content
