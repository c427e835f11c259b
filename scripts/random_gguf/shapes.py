"""Shapes of llama-architecture models: the sizes of known ones, and the tensors that a shape has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The dimensions of one model; ``tied`` means that the embedding serves as output matrix too.

    In a mixture ``ff`` is the width of one expert, of which each token uses ``experts_used``. Without
    ``head_width``, the heads share the model's width.
    """

    layers: int
    embd: int
    ff: int
    heads: int
    kv_heads: int
    vocab: int
    context: int
    rope_base: float = 10_000.0
    tied: bool = False
    experts: int | None = None  # of each layer; None where it is no mixture
    experts_used: int | None = None
    head_width: int | None = None

    @property
    def head_dim(self) -> int:
        return self.head_width or self.embd // self.heads


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor: its columns are what ggml calls the row length; a norm is one row. Experts are stacked."""

    name: str
    columns: int
    rows: int
    role: str  # the name without ``blk.N.`` and ``.weight``
    layer: int | None = None
    experts: int = 1  # how many matrices of these columns and rows

    @property
    def all_rows(self) -> int:
        return self.rows * self.experts

    @property
    def is_norm(self) -> bool:
        return self.role.endswith("_norm")


PRESETS = {
    "llama-3-70b": Shape(
        layers=80,
        embd=8192,
        ff=28672,
        heads=64,
        kv_heads=8,
        vocab=128256,
        context=8192,
        rope_base=500_000.0,
    ),
    "llama-3-8b": Shape(
        layers=32,
        embd=4096,
        ff=14336,
        heads=32,
        kv_heads=8,
        vocab=128256,
        context=8192,
        rope_base=500_000.0,
    ),
    "llama-1b": Shape(  # Llama 3.2 1B, without its table of rope frequencies (128 bytes)
        layers=16,
        embd=2048,
        ff=8192,
        heads=32,
        kv_heads=8,
        vocab=128256,
        context=131072,
        rope_base=500_000.0,
        tied=True,
    ),
    "llama-2-7b": Shape(layers=32, embd=4096, ff=11008, heads=32, kv_heads=32, vocab=32000, context=4096),
    "llama-2-13b": Shape(layers=40, embd=5120, ff=13824, heads=40, kv_heads=40, vocab=32000, context=4096),
    "tinyllama-1.1b": Shape(layers=22, embd=2048, ff=5632, heads=32, kv_heads=4, vocab=32000, context=2048),
    "mixtral-8x7b": Shape(
        layers=32,
        embd=4096,
        ff=14336,
        heads=32,
        kv_heads=8,
        vocab=32000,
        context=32768,
        rope_base=1_000_000.0,
        experts=8,
        experts_used=2,
    ),
    "fine-mixture": Shape(  # as Qwen3-30B-A3B, whose heads are twice as wide and whose vocabulary is larger
        layers=48,
        embd=2048,
        ff=768,
        heads=32,
        kv_heads=4,
        vocab=128256,
        context=40960,
        rope_base=1_000_000.0,
        experts=128,
        experts_used=8,
    ),
}


def tensors(shape: Shape) -> list[Tensor]:
    """Return the tensors of a model in the order in which llama.cpp's converter writes them."""
    q, kv = (shape.head_dim * heads for heads in (shape.heads, shape.kv_heads))
    suffix, experts = ("_exps", shape.experts) if shape.experts else ("", 1)
    router = {"ffn_gate_inp": (shape.embd, experts)} if shape.experts else {}
    sizes = {  # role: columns, rows
        "attn_norm": (shape.embd, 1),
        f"ffn_down{suffix}": (shape.ff, shape.embd),
        f"ffn_gate{suffix}": (shape.embd, shape.ff),
        f"ffn_up{suffix}": (shape.embd, shape.ff),
        **router,
        "ffn_norm": (shape.embd, 1),
        "attn_k": (shape.embd, kv),
        "attn_output": (q, shape.embd),
        "attn_q": (shape.embd, q),
        "attn_v": (shape.embd, kv),
    }
    layers = [
        Tensor(
            name=f"blk.{layer}.{role}.weight",
            columns=columns,
            rows=rows,
            role=role,
            layer=layer,
            experts=experts if role.endswith("_exps") else 1,
        )
        for layer in range(shape.layers)
        for role, (columns, rows) in sizes.items()
    ]
    ends = {"token_embd": shape.vocab, "output_norm": 1, "output": shape.vocab}
    first, norm, last = (
        Tensor(name=f"{role}.weight", columns=shape.embd, rows=rows, role=role) for role, rows in ends.items()
    )
    return [first, *layers, norm, *([] if shape.tied else [last])]
