"""The scratch memory of one evaluation, which llama.cpp reserves in full before it starts.

The graph's allocator reuses memory from one operation to the next, so that the largest moment decides. It is
one of three: the feed-forward network, attention scores (without flash attention), or the logits. How many
vectors of the model's width live beside the large ones was counted in programs of 2024 and of today, with
which the sums agree within 1 % (without flash attention within 3 %).
"""

from __future__ import annotations

from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory.cache import windows
from ggufspec.modelfiles.memory.settings import MemorySettings

_FLOAT = 4


def compute_bytes(card: ModelCard, settings: MemorySettings, *, n_outputs: int) -> int:
    """Return the scratch memory of a device that evaluates whole layers and the output.

    Args:
        card: the model.
        settings: how it is run.
        n_outputs: tokens of a batch whose logits are wanted.
    """
    return max(
        feed_forward_bytes(card, settings),
        attention_bytes(card, settings),
        logits_bytes(card, settings, n_outputs),
    )


def feed_forward_bytes(card: ModelCard, settings: MemorySettings) -> int:
    """Gate, up and their product, beside four vectors."""
    n_ff = max(card.n_ff) or 4 * card.n_embd
    if card.n_experts_used:
        expert = card.metadata.get(f"{card.architecture}.expert_feed_forward_length")
        n_ff = card.n_experts_used * (expert if isinstance(expert, int) else n_ff)
    return mask_bytes(card, settings) + settings.n_tokens * (3 * n_ff + 4 * card.n_embd) * _FLOAT


def attention_bytes(card: ModelCard, settings: MemorySettings) -> int:
    """The scores of all heads, beside vectors of the model's width, keys and values."""
    lean = settings.layout.lean_graph
    keys_and_values = 0 if lean else (card.key_length + card.value_length) * max(card.n_heads_kv)
    width = (4 if lean else 5) * card.n_embd + keys_and_values
    scores = 0 if settings.layout.flash_attention else settings.cells * max(card.n_heads)
    return mask_bytes(card, settings) + settings.n_tokens * (scores + width) * _FLOAT


def logits_bytes(card: ModelCard, settings: MemorySettings, n_outputs: int) -> int:
    """The logits, beside one or two vectors of the model's width."""
    vectors = 1 if settings.layout.lean_graph else 2
    return (n_outputs * card.vocabulary.n_tokens + vectors * settings.n_tokens * card.n_embd) * _FLOAT


def mask_bytes(card: ModelCard, settings: MemorySettings) -> int:
    """The attention masks: one for whole caches, one for each size of window."""
    cells = {settings.cells if window is None else settings.window_cells(window) for window in windows(card)}
    return sum(cells) * settings.n_tokens * (2 if settings.layout.flash_attention else _FLOAT)


def input_bytes(card: ModelCard, settings: MemorySettings) -> int:
    """What the host hands to a GPU that does everything else: embedded tokens and masks."""
    return settings.n_tokens * card.n_embd * _FLOAT + mask_bytes(card, settings)
