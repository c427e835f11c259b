"""SHA-256 of files, computed once and remembered until a file changes.

A digest is remembered by the file's device, inode, size, modification time and change time, in a small
database in the cache folder. A file that was modified within the last seconds is not remembered: a second
write within one tick of the clock would not change these values. Without a usable database, every digest is
computed anew.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ggufspec import paths

_DATABASE = "digests.sqlite"
_SETTLED_NS = 2_000_000_000
_LOCK_WAIT_S = 5.0
_TABLE = (
    "CREATE TABLE IF NOT EXISTS digests "
    "(device, inode, size_bytes, modified_ns, changed_ns, sha256 TEXT NOT NULL, "
    "PRIMARY KEY (device, inode)) WITHOUT ROWID"
)


@dataclass(frozen=True, kw_only=True)
class FileDigest:
    """A file's size in bytes and its SHA-256 in lower-case hexadecimal."""

    size_bytes: int
    sha256: str


def of_file(path: Path) -> FileDigest:
    """Return the digest of a file, following symbolic links. Computes it unless it is remembered.

    Computing takes about one second per 1 to 2 GB.

    Raises:
        OSError: the file cannot be read.
    """
    remembered_digest = remembered(path)
    if remembered_digest is not None:
        return remembered_digest
    with path.open("rb") as file:
        before = os.fstat(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size_bytes = file.tell()
        unchanged = _identity(before) == _identity(os.fstat(file.fileno())) and size_bytes == before.st_size
    if unchanged:
        _remember(before, sha256)
    return FileDigest(size_bytes=size_bytes, sha256=sha256)


def remembered(path: Path) -> FileDigest | None:
    """Return the remembered digest of a file; None if the file would have to be read.

    Raises:
        OSError: there is no such file.
    """
    status = path.stat()
    with suppress(sqlite3.Error, OSError), _database() as database:
        row = database.execute(
            "SELECT sha256 FROM digests WHERE device = ? AND inode = ? AND size_bytes = ? "
            "AND modified_ns = ? AND changed_ns = ?",
            _identity(status),
        ).fetchone()
        if row is not None:
            return FileDigest(size_bytes=status.st_size, sha256=str(row[0]))
    return None


def remember(path: Path, sha256: str) -> None:
    """Store a digest that was computed elsewhere, such as during a download.

    Raises:
        OSError: there is no such file.
    """
    _remember(path.stat(), sha256)


def unsettled_s(path: Path) -> float:
    """Return the seconds until the digest of an unchanged file can be remembered.

    Raises:
        OSError: there is no such file.
    """
    return max(0, _SETTLED_NS - _age_ns(path.stat())) / 1e9


def _remember(status: os.stat_result, sha256: str) -> None:
    if _age_ns(status) < _SETTLED_NS:
        return
    with suppress(sqlite3.Error, OSError), _database() as database, database:
        database.execute(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?)", (*_identity(status), sha256)
        )


def _age_ns(status: os.stat_result) -> int:
    return time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns)


def _identity(status: os.stat_result) -> tuple[int | str, ...]:
    # a device or inode number can exceed SQLite's 64 signed bits
    return (str(status.st_dev), str(status.st_ino), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    folder = paths.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / _DATABASE, timeout=_LOCK_WAIT_S)) as database:
        database.execute(_TABLE)
        yield database
