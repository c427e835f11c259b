"""Logs of llama.cpp's programs, of any era, to samples."""

from __future__ import annotations

from ggufspec.llama.logs.reading import LoggedRun, LogReading, read
from ggufspec.llama.logs.sources import parse

__all__ = [
    "LogReading",
    "LoggedRun",
    "parse",
    "read",
]
