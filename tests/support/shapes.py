"""Shapes of models whose memory is planned, each in a size measured once and in one for every day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import models

Shape = tuple[dict[str, models.Value], list[models.TensorSpec]]
LLAMA3 = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [str(number) for number in range(128_256)]}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    make: Callable[..., Shape]
    of_both: Mapping[str, Any]
    measured: Mapping[str, Any]
    small: Mapping[str, Any]


_KINDS = {
    "grouped queries, tied embedding": _Kind(
        make=models.llama,
        of_both={"tied": True, "types": lambda name: "Q6_K" if "embd" in name else "Q4_K"},
        measured={"n_layers": 16, "n_embd": 2048, "n_ff": 8192, "n_heads": 32, "n_heads_kv": 8}
        | {"vocabulary": LLAMA3},
        small={"n_layers": 6, "n_embd": 1024, "n_ff": 4096, "n_heads": 16, "n_heads_kv": 4},
    ),
    "sliding windows": _Kind(
        make=models.gemma3,
        of_both={"n_heads": 4, "n_heads_kv": 1, "head": 256, "window": 512},
        measured={"n_layers": 26, "n_embd": 1152, "n_ff": 6912, "types": lambda _: "Q8_0"},
        small={"n_layers": 8, "n_embd": 640, "n_ff": 2048, "types": lambda _: "F16"},
    ),
    "experts": _Kind(
        make=models.llama,
        of_both={"n_experts": 8, "n_heads_kv": 4, "types": lambda _: "Q8_0"},
        measured={"n_layers": 8, "n_embd": 1024, "n_ff": 2048, "n_heads": 16},
        small={"n_layers": 4, "n_embd": 768, "n_ff": 1024, "n_heads": 12},
    ),
}
NAMES = tuple(_KINDS)


def measured(name: str) -> Shape:
    """Return the size whose buffers llama.cpp printed once; its weights take 500 MiB and more."""
    kind = _KINDS[name]
    return kind.make(**{"vocabulary": models.tokens(32_000), **kind.of_both, **kind.measured})


def small(name: str) -> Shape:
    """Return a size that a real llama.cpp runs within seconds."""
    kind = _KINDS[name]
    return kind.make(vocabulary=models.tokens(20_000), **kind.of_both, **kind.small)
