"""The log of a program that still writes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MOST_LOG_BYTES = 16 << 20
"""Of what a program prints in one run; a long run has less than 1 MB."""
MOST_SERVER_LOG_BYTES = 256 << 20
"""Of what a server, or a worker, prints in all of its runs."""


@dataclass(kw_only=True)
class LogTail:
    """The unread end of a log that a process still writes."""

    log: Path
    _reported: int = 0  # bytes that ``read`` has returned

    def peek(self) -> bytes:
        """Return the bytes logged since the last ``read``."""
        with self.log.open("rb") as file:
            file.seek(self._reported)
            return file.read()

    def read(self) -> bytes:
        """Return the same bytes and mark them as read."""
        unread = self.peek()
        self._reported += len(unread)
        return unread
