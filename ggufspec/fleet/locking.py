"""One block at a time on a host, whatever the number of nodes, users and drivers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import lock_descriptor

HOST_LOCK = Path("/tmp/ggufspec-fleet.lock")  # noqa: S108  # not TMPDIR, which may differ between users
"""The file that is locked while a block is measured; containers of a host share it if they share /tmp."""

_POLL_S = 0.5


@contextmanager
def hold_host(file: Path = HOST_LOCK) -> Iterator[float]:
    """Wait until nothing else is measured on this host, and keep it so; yield the seconds of waiting.

    The lock ends with the block or with the process.

    Raises:
        OSError: the file cannot be made or opened.
    """
    descriptor = _open(file)
    try:
        started = time.monotonic()
        while not lock_descriptor(descriptor, blocking=False):
            time.sleep(_POLL_S)
        yield time.monotonic() - started
    finally:
        os.close(descriptor)


def _open(file: Path) -> int:
    """Return a descriptor of a file that all users may lock.

    A file that is there is opened without O_CREAT: in a folder such as /tmp, Linux refuses to "create" the
    files of other users (fs.protected_regular).
    """
    try:
        return os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # between the two calls
        return os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.fchmod(descriptor, 0o666)  # whatever the umask: the lock is for every user
    return descriptor
