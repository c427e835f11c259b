"""What a model takes on each device: weights and caches by offloaded layers, and memory to evaluate.

The placement is that of llama_model::load_tensors. llama.cpp reserves the scratch memory of one evaluation in
full before it starts. The graph's allocator reuses memory from one operation to the next, so the largest
moment decides. It is one of three: the feed-forward network, attention scores (without flash attention), or
the logits. How many vectors of the model's width are needed beside the large ones was counted in programs of
2024 and of 2026; the sums agree with them within 1 % (without flash attention within 3 %).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ggufspec.domain import ModelRun
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory.settings import Layout, MemorySettings, cache_bytes, windows

_FLOAT = 4
_BLOCK = re.compile(r"blk\.(\d+)\.")
_INPUT = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\b")
_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\b")
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
        n_ff = card.n_experts_used * (card.number("expert_feed_forward_length") or n_ff)
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

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(
            weights=self.weights + other.weights,
            cache=self.cache + other.cache,
            compute=self.compute + other.compute,
        )


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """What one model takes when ``gpu_layers`` of ``max_layers`` layers, output included, are offloaded.

    ``gpus`` has a footprint for each GPU that layers are split over.
    """

    gpu_layers: int
    max_layers: int
    host: Footprint
    gpus: tuple[Footprint, ...]

    @property
    def gpu(self) -> Footprint:
        """The sum over all GPUs."""
        return sum(self.gpus, Footprint())


def expert_layer(name: str) -> int | None:
    """Return the layer of a tensor that has experts; None for any other tensor."""
    found = _EXPERTS.match(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Which device holds what: a GPU, counted from 0, or None for the host.

    Attributes:
        gpu_layers: how many layers are offloaded, the output included.
        tensors: the device of each tensor, by its name.
        caches: the device of each layer's cache.
        output: the device that computes logits. A tied embedding stays on the host and is copied there.
    """

    gpu_layers: int
    tensors: Mapping[str, int | None]
    caches: tuple[int | None, ...]
    output: int | None

    @property
    def experts_on_host(self) -> bool:
        """Whether experts of layers whose cache is on a GPU stay on the host."""
        return any(
            device is None and _EXPERTS.match(name) and self.caches[_layer_of(name, self.caches)] is not None
            for name, device in self.tensors.items()
        )


def distribute(
    card: ModelCard, run: ModelRun, layout: Layout, *, tensor_split: Sequence[float] = ()
) -> Distribution:
    """Return which device holds each tensor and each cache, as llama_model::load_tensors decides it.

    The offloaded layers are the last ones. Of n of them, the layer at place i (from 0) goes to the first GPU
    at which the running sum of proportions exceeds i/n.

    Args:
        card: the model.
        run: how many layers to offload ("all" and "auto" offload everything), and how many, counted from the
            first, keep their experts on the host.
        layout: how the build in use lays models out.
        tensor_split: proportions of the GPUs; without them there is one.
    """
    top = card.n_layers + 1
    gpu_layers = min(run.layers, top) if isinstance(run.layers, int) else top
    output_on_gpu = gpu_layers == top or (gpu_layers > 0 and layout.output_first)
    repeating = min(gpu_layers, card.n_layers) - (1 if output_on_gpu and gpu_layers < top else 0)
    first = card.n_layers - repeating
    bounds = [bound / sum(tensor_split) for bound in accumulate(tensor_split)] or [1.0]

    def gpu_at(index: int) -> int:
        return min(bisect_right(bounds, index / gpu_layers), len(bounds) - 1)

    caches = tuple(gpu_at(layer - first) if layer >= first else None for layer in range(card.n_layers))
    output = gpu_at(gpu_layers - 1) if output_on_gpu else None
    kept = card.n_layers if run.cpu_moe == "all" else run.cpu_moe or 0

    def device_of(name: str) -> int | None:
        if _BLOCK.match(name):
            layer = _layer_of(name, caches)
            return None if layer < kept and _EXPERTS.match(name) else caches[layer]
        return None if _INPUT.match(name) else output

    return Distribution(
        gpu_layers=gpu_layers,
        tensors={tensor.name: device_of(tensor.name) for tensor in card.tensors},
        caches=caches,
        output=output,
    )


def place(
    card: ModelCard,
    run: ModelRun,
    settings: MemorySettings,
    *,
    n_outputs: int,
    tensor_split: Sequence[float] = (),
    loaded: range | None = None,
) -> ModelMemory:
    """Return what a model takes on the host and on the GPUs.

    Args:
        card: the model.
        run: how many layers to offload ("all" and "auto" offload everything, 0 leaves the GPUs unused), which
            experts stay on the host, and the types of its caches.
        settings: how it is run.
        n_outputs: tokens of a batch whose logits are wanted.
        tensor_split: proportions of the GPUs; without them there is one.
        loaded: the layers whose weights are loaded, and which keep a cache; None for all.
    """
    loaded = range(card.n_layers) if loaded is None else loaded
    settings = settings.with_caches(run.caches)
    distribution = distribute(card, run, settings.layout, tensor_split=tensor_split)
    top, n_gpus = card.n_layers + 1, max(1, len(tensor_split))
    weights: dict[int | None, int] = dict.fromkeys((None, *range(n_gpus)), 0)
    largest_on_host = 0
    for tensor in card.tensors:
        if _BLOCK.match(tensor.name) and _layer_of(tensor.name, distribution.caches) not in loaded:
            continue
        device = distribution.tensors[tensor.name]
        weights[device] += tensor.size_bytes
        if device is None and not _INPUT.match(tensor.name):
            largest_on_host = max(largest_on_host, tensor.size_bytes)
    sizes = {tensor.name: tensor.size_bytes for tensor in card.tensors}
    tied = 0 if _OUTPUT in sizes else sizes.get(_EMBEDDING, 0)
    if distribution.output is not None:
        weights[distribution.output] += tied  # the embedding stays on the host, so that the GPU needs a copy
    else:
        largest_on_host = max(largest_on_host, tied)

    cache = dict.fromkeys(weights, 0)
    for layer, size in enumerate(cache_bytes(card, settings)):
        cache[distribution.caches[layer]] += size if layer in loaded else 0
    in_layers = max(feed_forward_bytes(card, settings), attention_bytes(card, settings))
    scratch = compute_bytes(card, settings, n_outputs=n_outputs)
    used = {*distribution.caches, distribution.output} - {None}
    compute = {device: scratch if device == distribution.output else in_layers for device in used}
    if distribution.gpu_layers == 0:
        compute[None] = scratch
    elif distribution.gpu_layers == top and not distribution.experts_on_host:
        # what the host hands to a GPU that does everything else: embedded tokens and masks
        compute[None] = settings.n_tokens * card.n_embd * _FLOAT + mask_bytes(card, settings)
    else:  # long batches are evaluated on the first GPU even for layers on the host, a tensor at a time
        on_host = feed_forward_bytes if distribution.gpu_layers == top else attention_bytes
        compute[None] = on_host(card, settings)
        compute[0] = scratch + largest_on_host
    footprints = {
        device: Footprint(weights=weights[device], cache=cache[device], compute=compute.get(device, 0))
        for device in weights
    }
    return ModelMemory(
        gpu_layers=distribution.gpu_layers,
        max_layers=top,
        host=footprints[None],
        gpus=tuple(footprints[device] for device in range(n_gpus)),
    )


def _layer_of(name: str, layers: Sequence[object]) -> int:
    """Return the layer of a tensor of a block; blocks beyond the last layer go with it."""
    return min(int(name.split(".")[1]), len(layers) - 1)
