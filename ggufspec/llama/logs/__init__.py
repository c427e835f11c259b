"""Logs of llama.cpp's programs, of any era, to samples."""

from __future__ import annotations

from ggufspec.llama.logs.reading import LoggedRun, LogReading, read
from ggufspec.llama.logs.sources import parse
from ggufspec.llama.logs.tail import MOST_LOG_BYTES, MOST_SERVER_LOG_BYTES, LogTail

__all__ = [
    "MOST_LOG_BYTES",
    "MOST_SERVER_LOG_BYTES",
    "LogReading",
    "LogTail",
    "LoggedRun",
    "parse",
    "read",
]
