"""What a model takes on each device: weights and caches by offloaded layers, and memory to evaluate.

The placement is that of llama_model::load_tensors. llama.cpp reserves the scratch memory of one evaluation in
full before it starts. The graph's allocator reuses memory from one operation to the next, so the largest
moment decides. It is one of three: the feed-forward network, attention scores (without flash attention), or
the logits. How many vectors of the model's width are needed beside the large ones was counted in programs of
2024 and of 2026; the sums agree with them within 1 % (without flash attention within 3 %).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ggufspec.domain import Layers
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory.cache import cache_bytes, windows
from ggufspec.modelfiles.memory.settings import MemorySettings

_FLOAT = 4
_BLOCK = re.compile(r"blk\.(\d+)\.")
_INPUT = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\b")
_EMBEDDING = "token_embd.weight"
_OUTPUT = "output.weight"


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


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """The bytes that one model takes on one device."""

    weights: int = 0
    cache: int = 0
    compute: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.compute


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """What one model takes when ``gpu_layers`` of ``max_layers`` layers, output included, are offloaded."""

    gpu_layers: int
    max_layers: int
    host: Footprint
    gpu: Footprint


def place(
    card: ModelCard,
    layers: Layers,
    settings: MemorySettings,
    *,
    n_outputs: int,
    loaded: range | None = None,
) -> ModelMemory:
    """Return what a model takes on the host and on the GPU.

    Args:
        card: the model.
        layers: how many layers to offload; "all" and "auto" offload everything, 0 leaves the GPU unused.
        settings: how it is run.
        n_outputs: tokens of a batch whose logits are wanted.
        loaded: the layers whose weights are loaded, and which keep a cache; None for all.
    """
    loaded = range(card.n_layers) if loaded is None else loaded
    top = card.n_layers + 1
    gpu_layers = min(layers, top) if isinstance(layers, int) else top
    output_on_gpu = gpu_layers == top or (gpu_layers > 0 and settings.layout.output_first)
    repeating = min(gpu_layers, card.n_layers) - (1 if output_on_gpu and gpu_layers < top else 0)
    first = card.n_layers - repeating

    weights = {True: 0, False: 0}
    largest_on_host = 0
    for tensor in card.tensors:
        block = _BLOCK.match(tensor.name)
        if block is not None and int(block[1]) not in loaded:
            continue
        on_gpu = _on_gpu(tensor.name, first, output_on_gpu=output_on_gpu)
        weights[on_gpu] += tensor.size_bytes
        if not on_gpu and not _INPUT.match(tensor.name):
            largest_on_host = max(largest_on_host, tensor.size_bytes)
    tied = _tied_bytes(card)
    if output_on_gpu:
        weights[True] += tied  # the embedding stays on the host, so that the GPU needs a copy
    else:
        largest_on_host = max(largest_on_host, tied)

    cache = [size if layer in loaded else 0 for layer, size in enumerate(cache_bytes(card, settings))]
    scratch = compute_bytes(card, settings, n_outputs=n_outputs)
    if gpu_layers == 0:
        host_compute, gpu_compute = scratch, 0
    elif gpu_layers == top:
        host_compute, gpu_compute = input_bytes(card, settings), scratch
    else:  # long batches are evaluated on the GPU even for layers on the host, one copied tensor at a time
        host_compute, gpu_compute = attention_bytes(card, settings), scratch + largest_on_host
    return ModelMemory(
        gpu_layers=gpu_layers,
        max_layers=top,
        host=Footprint(weights=weights[False], cache=sum(cache[:first]), compute=host_compute),
        gpu=Footprint(weights=weights[True], cache=sum(cache[first:]), compute=gpu_compute),
    )


def _on_gpu(name: str, first: int, *, output_on_gpu: bool) -> bool:
    block = _BLOCK.match(name)
    if block is not None:
        return int(block[1]) >= first
    return output_on_gpu and not _INPUT.match(name)


def _tied_bytes(card: ModelCard) -> int:
    sizes = {tensor.name: tensor.size_bytes for tensor in card.tensors}
    return 0 if _OUTPUT in sizes else sizes.get(_EMBEDDING, 0)
