"""What a model reads and computes per token, from its header alone."""

from __future__ import annotations

import math
import re

from ggufspec.forecast.costs import Shape
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.memory import MemorySettings, cache_bytes

_LOOKED_UP = re.compile(r"(?:token_embd|per_layer_token_embd|position_embd|token_types)\b")
_EXPERTS = re.compile(r"blk\.\d+\.ffn_\w+_exps\b")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_LEAST_DEPTH = 256


def shape(card: ModelCard, *, depth: int, kv_type: str = "F16") -> Shape:
    """Return a model's shape.

    Embeddings are looked up, not read, unless they serve for the output, too. Layers with a sliding window
    keep no more than it: what a token of the context adds is the mean at this depth.

    Args:
        card: the model.
        depth: tokens in the context.
        kv_type: ggml's name of the type of both caches.
    """
    tied = all(tensor.name != _OUTPUT for tensor in card.tensors)
    read = [
        tensor
        for tensor in card.tensors
        if not _LOOKED_UP.match(tensor.name) or (tied and tensor.name == _EMBEDDING)
    ]
    experts = [tensor for tensor in read if _EXPERTS.match(tensor.name)]
    share = card.n_experts_used / card.n_experts if card.n_experts and card.n_experts_used else 1.0
    weight_bytes = sum(tensor.size_bytes for tensor in read)
    idle_bytes = (1 - share) * sum(tensor.size_bytes for tensor in experts)
    idle_weights = (1 - share) * sum(math.prod(tensor.shape) for tensor in experts)
    settings = MemorySettings(context=max(depth, _LEAST_DEPTH), kv_type_k=kv_type, kv_type_v=kv_type)
    return Shape(
        weight_bytes=weight_bytes,
        active_bytes=weight_bytes - idle_bytes,
        kv_bytes=sum(cache_bytes(card, settings)) / settings.cells,
        flops=2 * (sum(math.prod(tensor.shape) for tensor in read) - idle_weights),
        kv_flops=sum(2 * heads * (card.key_length + card.value_length) for heads in card.n_heads),
        used_share=share if experts else 1.0,
    )
