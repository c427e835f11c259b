"""Which layers look back only over a sliding window, and how far.

A header may say so layer by layer; else llama.cpp knows the pattern of each architecture (src/models/*.cpp).
An architecture without a pattern attends to everything, whatever its header says of a window.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.modelfiles.gguf import ModelCard, NumberArray


@dataclass(frozen=True)
class _Pattern:
    """Of every ``period`` layers one sees everything: the last, or the first."""

    period: int
    dense_first: bool = False
    window: int | None = None  # where the header gives none


_PATTERNS = {
    "afmoe": _Pattern(4),
    "cohere2": _Pattern(4),
    "cohere2moe": _Pattern(4, dense_first=True),
    "exaone-moe": _Pattern(4),
    "exaone4": _Pattern(4),
    "gemma2": _Pattern(2, window=4096),
    "gemma3": _Pattern(6),
    "gemma3n": _Pattern(5),
    "gpt-oss": _Pattern(2),
    "laguna": _Pattern(4, dense_first=True),
    "llama4": _Pattern(4, window=8192),
    "mellum": _Pattern(4),
    "muse-glimmer": _Pattern(4),
    "olmo2": _Pattern(4),
    "plamo3": _Pattern(8),
    "smallthinker": _Pattern(4, dense_first=True),
}


def windows(card: ModelCard) -> tuple[int | None, ...]:
    """Return for each layer how many tokens it looks back; None where it sees everything."""
    stated = card.metadata.get(f"{card.architecture}.attention.sliding_window_pattern")
    pattern = _PATTERNS.get(card.architecture)
    window = card.sliding_window
    if window is None and pattern is not None and "sliding_window" not in _keys(card):
        window = pattern.window
    if window is None:
        return (None,) * card.n_layers
    if isinstance(stated, NumberArray) and len(stated) >= card.n_layers:
        return tuple(window if flag else None for flag in stated[: card.n_layers])
    if pattern is None:
        return (None,) * card.n_layers
    period = stated if isinstance(stated, int) and stated > 0 else pattern.period
    dense = 0 if pattern.dense_first else period - 1
    return tuple(None if layer % period == dense else window for layer in range(card.n_layers))


def _keys(card: ModelCard) -> set[str]:
    return {key.rpartition(".")[2] for key in card.metadata}
