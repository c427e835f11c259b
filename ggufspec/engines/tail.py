"""What a program that stays has logged since somebody last looked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class Tail:
    """The end of a growing log."""

    log: Path
    _reported: int = 0  # bytes that were handed out

    def peek(self) -> bytes:
        """Return what was logged since the last ``read``."""
        with self.log.open("rb") as file:
            file.seek(self._reported)
            return file.read()

    def read(self) -> bytes:
        """Return the same, and do not return it again."""
        news = self.peek()
        self._reported += len(news)
        return news
