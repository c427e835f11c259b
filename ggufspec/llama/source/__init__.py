"""Where llama.cpp's source comes from: the package index, git, or a local folder."""

from __future__ import annotations

from ggufspec.llama.source.sources import LEGACY, choose_source

__all__ = [
    "LEGACY",
    "choose_source",
]
