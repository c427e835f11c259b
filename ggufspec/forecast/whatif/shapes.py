"""What a model reads and computes per token, from its header alone."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ggufspec.domain import CacheTypes
from ggufspec.forecast.costs import Shape
from ggufspec.modelfiles.compat import mtp_layers, read_head
from ggufspec.modelfiles.gguf import ModelCard, Tensor
from ggufspec.modelfiles.memory import F16, Distribution, MemorySettings, cache_bytes

_LOOKED_UP = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\b")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"blk\.\d+\.ffn_\w+_exps\b")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_LEAST_DEPTH = 256


def shape(card: ModelCard, *, depth: int, caches: CacheTypes = F16) -> Shape:
    """Return a model's shape.

    Embeddings are looked up, not read, unless they serve for the output, too. Layers with a sliding window
    keep no more than it: what a token of the context adds is the mean at this depth. Layers for MTP that are
    part of a target only draft, so they are left out.

    Args:
        card: the model.
        depth: tokens in the context.
        caches: the types of its caches.
    """
    settings = _settings(depth, caches)
    return _shape_of(card, _read_tensors(card), _layers(card), settings)


def shapes_by_device(
    card: ModelCard, distribution: Distribution, *, depth: int, caches: CacheTypes = F16
) -> dict[int | None, Shape]:
    """Return the shape of what each device evaluates; a GPU's number, or None for the host, is the key.

    A device that reads nothing is left out. The parts together are what ``shape`` returns.

    Args:
        card: the model.
        distribution: where its tensors and caches are.
        depth: tokens in the context.
        caches: the types of its caches.
    """
    settings = _settings(depth, caches)
    held: dict[int | None, list[Tensor]] = {}
    for tensor in _read_tensors(card):
        is_tied_output = _LOOKED_UP.match(tensor.name)
        device = distribution.output if is_tied_output else distribution.tensors[tensor.name]
        held.setdefault(device, []).append(tensor)
    layers: dict[int | None, list[int]] = {}
    for layer in _layers(card):
        layers.setdefault(distribution.caches[layer], []).append(layer)
    return {
        device: _shape_of(card, held.get(device, ()), layers.get(device, ()), settings)
        for device in dict.fromkeys((*layers, *held))
    }


def _settings(depth: int, caches: CacheTypes) -> MemorySettings:
    return MemorySettings(context=max(depth, _LEAST_DEPTH), caches=caches)


def _layers(card: ModelCard) -> range:
    """Return the layers that an evaluation computes."""
    head = read_head(card)
    return range(card.n_layers - (mtp_layers(card) if head is not None and head.in_target else 0))


def _read_tensors(card: ModelCard) -> list[Tensor]:
    """Return the tensors that an evaluation reads."""
    left_out = range(len(_layers(card)), card.n_layers)
    tied = all(tensor.name != _OUTPUT for tensor in card.tensors)
    return [
        tensor
        for tensor in card.tensors
        if (not _LOOKED_UP.match(tensor.name) or (tied and tensor.name == _EMBEDDING))
        and not ((block := _BLOCK.match(tensor.name)) and int(block[1]) in left_out)
    ]


def _shape_of(
    card: ModelCard, read: Sequence[Tensor], layers: Sequence[int], settings: MemorySettings
) -> Shape:
    """Return the shape of some tensors, and of the caches and the attention of some layers."""
    experts = [tensor for tensor in read if _EXPERTS.match(tensor.name)]
    share = card.n_experts_used / card.n_experts if card.n_experts and card.n_experts_used else 1.0
    weight_bytes = sum(tensor.size_bytes for tensor in read)
    idle_bytes = (1 - share) * sum(tensor.size_bytes for tensor in experts)
    idle_weights = (1 - share) * sum(math.prod(tensor.shape) for tensor in experts)
    caches = cache_bytes(card, settings)
    return Shape(
        weight_bytes=weight_bytes,
        active_bytes=weight_bytes - idle_bytes,
        kv_bytes=sum(caches[layer] for layer in layers) / settings.cells,
        flops=2 * (sum(math.prod(tensor.shape) for tensor in read) - idle_weights),
        kv_flops=sum(2 * card.n_heads[layer] * (card.key_length + card.value_length) for layer in layers),
        used_share=share if experts else 1.0,
    )
