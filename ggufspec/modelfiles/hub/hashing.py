"""The hash of a file that is still being downloaded, computed in the background."""

from __future__ import annotations

import hashlib
import re
import threading
from pathlib import Path
from typing import Protocol

_CHUNK_BYTES = 4 << 20
_IDLE_S = 0.01
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Hasher(Protocol):
    """What hashlib's constructors return."""

    def update(self, data: bytes, /) -> None:
        """Take in more bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""


def is_sha256(digest: str) -> bool:
    """Return whether a digest is a SHA-256: the listed digest of a file that is kept in LFS."""
    return _SHA256.fullmatch(digest) is not None


def new_hasher(like: str, size_bytes: int) -> Hasher:
    """Return SHA-256 for the digest of an LFS file, else git's hash of a blob of that size."""
    if is_sha256(like):
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)


class FollowingHash:
    """Hashes a growing file from its first byte, in a thread of its own.

    What an interrupted download has left is hashed while the rest arrives. hashlib and file reads release
    the interpreter lock, so the download is hardly slower on two cores.

    Args:
        path: the file; bytes are only ever added to it.
        hasher: takes in its bytes.
        size_bytes: how long the file will be.
    """

    def __init__(self, path: Path, hasher: Hasher, size_bytes: int) -> None:
        self._path = path
        self._hasher = hasher
        self._size_bytes = size_bytes
        self._given_up = threading.Event()
        self._complete = threading.Event()
        self._error: OSError | None = None
        self.done_bytes = 0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Stop: the file will not be completed, or not from these bytes."""
        self._given_up.set()
        self._thread.join()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the hash of a file that no longer grows; return whether all of it was hashed.

        Raises:
            OSError: the file cannot be read.
        """
        self._complete.set()
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def hexdigest(self) -> str:
        """Return the digest once `wait` has returned True."""
        return self._hasher.hexdigest()

    def _follow(self) -> None:
        try:
            with self._path.open("rb") as file:
                while self.done_bytes < self._size_bytes and not self._given_up.is_set():
                    complete = self._complete.is_set()  # asked before the read, which then sees the last byte
                    chunk = file.read(min(_CHUNK_BYTES, self._size_bytes - self.done_bytes))
                    self._hasher.update(chunk)
                    self.done_bytes += len(chunk)
                    if not chunk and complete:
                        return  # it is shorter than it was: its hash will not be the right one
                    if not chunk:
                        self._given_up.wait(_IDLE_S)
        except OSError as error:
            self._error = error
