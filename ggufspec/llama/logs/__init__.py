"""Logs of llama.cpp's programs, of any era, to samples."""

from __future__ import annotations

from ggufspec.llama.logs.parsing import parse

__all__ = [
    "parse",
]
