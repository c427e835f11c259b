"""What a folder of programs and libraries holds: recorded when it is made, compared when it is used.

A file system that lost power, a full disk or a copy that was cut short leave files that exist but
have changed. Sizes are compared first, SHA-256 only where they agree; a large file is hashed once
while it stays as it is.
"""

from __future__ import annotations

import hashlib
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from ggufspec import digests, paths

_SMALL_BYTES = 1 << 20  # to read these is faster than to remember them
_ELF = b"\x7fELF"
_ELF64_SECTIONS = struct.Struct("<40xQ10xHH2x")  # e_shoff, e_shentsize, e_shnum (System V ABI, ELF header)
_ELF64_LITTLE = b"\x02\x01"  # 64 bits, least significant byte first


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file, or a symbolic link, which has only a target."""

    size_bytes: int | None = None
    sha256: str | None = None
    executable: bool = False
    link: str | None = None


def record(folder: Path) -> dict[str, FileRecord]:
    """Return every file below a folder, by its path in there."""
    return {path.relative_to(folder).as_posix(): _entry(path) for path in _files(folder)}


def find_damage(folder: Path, recorded: Mapping[str, FileRecord]) -> str | None:
    """Return what is wrong with the first recorded file that is not as it was; None where all are."""
    for name, entry in recorded.items():
        if problem := _obvious(folder / name, entry):
            return f"{name} {problem}"
    for name, entry in recorded.items():
        try:
            if entry.sha256 is not None and sha256(folder / name) != entry.sha256:
                return f"{name} has changed: its SHA-256 differs"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
    return None


def find_cut_short(folder: Path) -> str | None:
    """Return what is wrong with the first file below a folder that cannot be complete, if any is.

    For folders of which nothing was recorded: this finds empty files, links that lead nowhere, and programs
    and libraries of Linux whose end is missing.
    """
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            if not path.exists():
                return f"{name} is a broken link"
        elif path.stat().st_size == 0:
            return f"{name} is empty"
        elif _lacks_end(path):
            return f"{name} is cut short"
    return None


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in lower-case hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    if path.stat().st_size >= _SMALL_BYTES:
        return digests.of_file(path).sha256
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(folder: Path) -> None:
    """Wait until every file and folder below a folder is on the disk, and the folder itself."""
    for path in (*_files(folder), *(path for path in folder.rglob("*") if path.is_dir()), folder):
        if not path.is_symlink():
            paths.sync(path)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())


def _entry(path: Path) -> FileRecord:
    if path.is_symlink():
        return FileRecord(link=str(path.readlink()))
    status = path.stat()
    return FileRecord(
        size_bytes=status.st_size, sha256=sha256(path), executable=bool(status.st_mode & stat.S_IXUSR)
    )


def _obvious(path: Path, entry: FileRecord) -> str | None:
    """Return what is wrong with a file as far as the file system alone tells."""
    try:
        status = path.stat() if entry.link is None else path.lstat()
    except OSError:
        return "is missing"
    if entry.link is not None:
        is_same = stat.S_ISLNK(status.st_mode) and str(path.readlink()) == entry.link
        return None if is_same else f"is no longer a link to {entry.link}"
    if not stat.S_ISREG(status.st_mode):
        return "is no longer a file"
    if status.st_size != entry.size_bytes:
        return f"has {status.st_size} bytes instead of {entry.size_bytes}"
    if entry.executable and not status.st_mode & stat.S_IXUSR:
        return "is no longer executable"
    return None


def _lacks_end(path: Path) -> bool:
    """Whether an ELF file ends before its section table, which linkers write last."""
    try:
        with path.open("rb") as file:
            header = file.read(64)
    except OSError:
        return True
    if header[:4] != _ELF:
        return False
    if len(header) < 64:
        return True
    if header[4:6] != _ELF64_LITTLE:
        return False
    offset, entry_bytes, entries = _ELF64_SECTIONS.unpack(header)
    return bool(path.stat().st_size < offset + entry_bytes * entries)
