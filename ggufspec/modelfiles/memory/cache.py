"""The bytes that each layer keeps of the context: keys and values, or the state of a recurrent layer."""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.modelfiles.gguf import TYPES_BY_NAME, ModelCard, NumberArray
from ggufspec.modelfiles.memory.settings import MemorySettings

_STATE_PARTS = (".ssm_", ".shortconv", ".time_mix_")
_FLOAT = 4  # recurrent states are kept in F32


def cache_bytes(card: ModelCard, settings: MemorySettings) -> tuple[int, ...]:
    """Return the bytes that each layer caches for all slots (llama_kv_cache, llama_memory_recurrent)."""
    keeps = _keeps_keys(card)
    shared = _first_shared(card)
    state = _state_bytes(card)
    sizes = []
    for layer, window in enumerate(windows(card)):
        size = _layer_bytes(card, layer, window, settings) if keeps[layer] and layer < shared else 0
        sizes.append(settings.n_slots * (size + (state if _has_state(card, layer) else 0)))
    return tuple(sizes)


def _layer_bytes(card: ModelCard, layer: int, window: int | None, settings: MemorySettings) -> int:
    key, value = card.key_length, card.value_length
    if window is not None:
        key = card.number("attention.key_length_swa") or key
        value = card.number("attention.value_length_swa") or value
    if card.number("attention.key_length_mla"):
        value = 0  # multi-head latent attention caches one compressed vector, from which both are made
    heads = card.n_heads_kv[layer]
    cells = settings.cells if window is None else settings.window_cells(window)
    k_type, v_type = (
        TYPES_BY_NAME[name.upper()] for name in (settings.caches.type_k, settings.caches.type_v)
    )
    return cells * (k_type.row_bytes(key * heads) + v_type.row_bytes(value * heads))


def _keeps_keys(card: ModelCard) -> tuple[bool, ...]:
    """In a hybrid, only the layers with a key projection of their own have a cache."""
    if not card.is_recurrent:
        return (True,) * card.n_layers
    names = {tensor.name for tensor in card.tensors}
    return tuple(f"blk.{layer}.attn_k.weight" in names for layer in range(card.n_layers))


def _first_shared(card: ModelCard) -> int:
    """The first of the layers that read the cache of an earlier one."""
    if card.architecture == "gemma3n":
        return 20
    return card.n_layers - (card.number("attention.shared_kv_layers") or 0)


def _has_state(card: ModelCard, layer: int) -> bool:
    prefix = f"blk.{layer}."
    return card.is_recurrent and any(
        tensor.name.startswith(prefix) and part in tensor.name
        for tensor in card.tensors
        for part in _STATE_PARTS
    )


def _state_bytes(card: ModelCard) -> int:
    """The state of one recurrent layer: what the convolution remembers, and the state proper."""
    head = card.number("wkv.head_size")
    if head:
        return _FLOAT * card.n_embd * ((card.number("token_shift_count") or 2) + head)
    reach = card.number("shortconv.l_cache")
    if reach:
        return _FLOAT * card.n_embd * (reach - 1)
    inner, size = card.number("ssm.inner_size") or 0, card.number("ssm.state_size") or 0
    groups, kernel = card.number("ssm.group_count") or 0, card.number("ssm.conv_kernel") or 1
    return _FLOAT * ((kernel - 1) * (inner + 2 * groups * size) + size * inner)


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
    """Return for each layer how many tokens it looks back; None where it sees everything.

    A header may say so layer by layer; otherwise llama.cpp knows the pattern of each architecture
    (src/models/*.cpp). An architecture without a pattern attends to everything, whatever its header says.
    """
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
