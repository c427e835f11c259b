"""llama.cpp as a library, in a child process of ours that may crash without taking anything along."""

from __future__ import annotations

from ggufspec.engines.library.messages import Part, TextScores, Timing

__all__ = [
    "Part",
    "TextScores",
    "Timing",
]
