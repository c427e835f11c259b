"""Write a head with random weights for a target, or a small target with a layer for MTP.

    python scripts/make_random_head.py models/demo/target.gguf --kind eagle3 -o eagle3.gguf
    python scripts/make_random_head.py models/demo/target.gguf --kind mtp -o with-mtp.gguf

llama.cpp loads such a head and drafts with it, so that flags, logs, limits and refusals can be seen on real
programs without a download. What it drafts is accepted by chance only. The tokenizer is the target's own.

``mtp`` is a model of its own, of the architecture glm4moe with random weights: its layers are dense, and the
last one, a mixture of two experts, is for MTP.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

RANK = 16  # of a DSpark head's Markov matrices
TensorShape = tuple[int, ...]  # as llama.cpp writes them: columns first


class Target:
    """The sizes of a target, from its header."""

    def __init__(self, path: Path) -> None:
        self.reader = gguf.GGUFReader(path)
        self.arch = str(self.reader.fields["general.architecture"].contents())
        self.embd = self.count("embedding_length")
        self.layers = self.count("block_count")
        self.ff = self.count("feed_forward_length")
        self.heads = self.count("attention.head_count")
        self.kv_heads = self.count("attention.head_count_kv")
        self.context = self.count("context_length")
        self.vocab = len(self.reader.fields["tokenizer.ggml.tokens"].data)

    def count(self, key: str) -> int:
        return int(self.reader.fields[f"{self.arch}.{key}"].contents())

    @property
    def kv(self) -> int:
        return self.embd // self.heads * self.kv_heads

    @property
    def read_layers(self) -> list[int]:
        """The layers whose inputs a head reads: an early one, one in the middle, and the last one."""
        return [1, self.layers // 2, self.layers - 1]


def attention(target: Target, layer: int, width: int) -> Iterator[tuple[str, TensorShape]]:
    yield f"blk.{layer}.attn_q.weight", (width, target.embd)
    yield f"blk.{layer}.attn_k.weight", (width, target.kv)
    yield f"blk.{layer}.attn_v.weight", (width, target.kv)
    yield f"blk.{layer}.attn_output.weight", (target.embd, target.embd)


def feed_forward(
    target: Target, layer: int, suffix: str = "", *more: int
) -> Iterator[tuple[str, TensorShape]]:
    for role, shape in {
        "gate": (target.embd, target.ff),
        "up": (target.embd, target.ff),
        "down": (target.ff, target.embd),
    }.items():
        yield f"blk.{layer}.ffn_{role}{suffix}.weight", (*shape, *more)


def norms(target: Target, *names: str, width: int | None = None) -> Iterator[tuple[str, TensorShape]]:
    for name in names:
        yield f"{name}.weight", (width or target.embd,)


def eagle3(target: Target) -> Iterator[tuple[str, TensorShape]]:
    yield "fc.weight", (3 * target.embd, target.embd)
    yield from norms(target, "output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm")
    yield from attention(target, 0, 2 * target.embd)
    yield from feed_forward(target, 0)


def dflash(target: Target) -> Iterator[tuple[str, TensorShape]]:
    yield "fc.weight", (3 * target.embd, target.embd)
    yield from norms(target, "enc.output_norm", "output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    yield from norms(target, "blk.0.attn_q_norm", "blk.0.attn_k_norm", width=target.embd // target.heads)
    yield from attention(target, 0, target.embd)
    yield from feed_forward(target, 0)


def dspark(target: Target) -> Iterator[tuple[str, TensorShape]]:
    yield from dflash(target)
    yield "markov_w1.weight", (RANK, target.vocab)
    yield "markov_w2.weight", (RANK, target.vocab)
    yield "conf_proj.weight", (target.embd + RANK, 1)
    yield "conf_proj.bias", (1,)


def mtp(target: Target) -> Iterator[tuple[str, TensorShape]]:
    yield "token_embd.weight", (target.embd, target.vocab)
    yield "output.weight", (target.embd, target.vocab)
    yield from norms(target, "output_norm")
    for layer in range(target.layers + 1):
        yield from norms(target, f"blk.{layer}.attn_norm", f"blk.{layer}.post_attention_norm")
        yield from attention(target, layer, target.embd)
        if layer < target.layers:
            yield from feed_forward(target, layer)
    last = target.layers
    yield f"blk.{last}.ffn_gate_inp.weight", (target.embd, 2)
    yield f"blk.{last}.exp_probs_b.bias", (2,)
    yield from feed_forward(target, last, "_exps", 2)
    yield from feed_forward(target, last, "_shexp")
    yield f"blk.{last}.nextn.eh_proj.weight", (2 * target.embd, target.embd)
    yield from norms(target, f"blk.{last}.nextn.enorm", f"blk.{last}.nextn.hnorm")


KINDS: Mapping[str, tuple[str, Callable[[Target], Iterator[tuple[str, TensorShape]]]]] = {
    "eagle3": ("eagle3", eagle3),
    "dflash": ("dflash", dflash),
    "dspark": ("dflash", dspark),
    "mtp": ("glm4moe", mtp),
}


def write(path: Path, target: Target, kind: str, *, block: int, seed: int) -> None:
    """Write a head for a target, or a target with a layer for MTP."""
    arch, tensors = KINDS[kind]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"random {kind}, seed {seed}")
    writer.add_context_length(target.context)
    writer.add_embedding_length(target.embd)
    writer.add_feed_forward_length(target.ff)
    writer.add_head_count(target.heads)
    writer.add_head_count_kv(target.kv_heads)
    writer.add_key_length(target.embd // target.heads)
    writer.add_value_length(target.embd // target.heads)
    writer.add_rope_dimension_count(target.embd // target.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    if kind == "mtp":
        writer.add_block_count(target.layers + 1)
        writer.add_uint32(f"{arch}.nextn_predict_layers", 1)
        writer.add_leading_dense_block_count(target.layers)
        writer.add_expert_count(2)
        writer.add_expert_used_count(1)
        writer.add_expert_shared_count(1)
        writer.add_expert_feed_forward_length(target.ff)
    else:
        writer.add_block_count(1)
        writer.add_array(f"{arch}.target_layers", target.read_layers)
        writer.add_uint32(f"{arch}.target_hidden_size", target.embd)
        writer.add_uint32(f"{arch}.block_size", block)
    add_tokenizer(writer, target, needs_mask=arch == "dflash")
    write_tensors(writer, tensors(target), seed)


def write_tensors(writer: gguf.GGUFWriter, tensors: Iterable[tuple[str, TensorShape]], seed: int) -> None:
    """Add random tensors of these names and shapes, and write the whole file."""
    rng = np.random.default_rng(seed)
    for name, shape in tensors:
        writer.add_tensor(name, weights(name, shape, rng))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def weights(name: str, shape: TensorShape, rng: np.random.Generator) -> NDArray[np.generic]:
    """Return norms of 1, and matrices that keep what passes through them at its size."""
    if len(shape) == 1:
        return np.full(shape, 0 if name.endswith("bias") else 1, np.float32)
    matrix = rng.standard_normal(shape[::-1], np.float32) * shape[0] ** -0.5
    made: NDArray[np.generic] = matrix if "gate_inp" in name else matrix.astype(np.float16)
    return made


def add_tokenizer(writer: gguf.GGUFWriter, target: Target, *, needs_mask: bool) -> None:
    for name, field in target.reader.fields.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            is_array = field.types[0] is gguf.GGUFValueType.ARRAY
            writer.add_key_value(
                name, field.contents(), field.types[0], field.types[-1] if is_array else None
            )
    if needs_mask and "tokenizer.ggml.mask_token_id" not in target.reader.fields:
        writer.add_mask_token_id(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="GGUF of the target, a model of plain attention layers")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument(
        "--block", type=int, default=8, metavar="N", help="trained block of dflash and dspark, by default 8"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="by default 0; the same seed writes the same bytes"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    write(options.output, Target(options.target), options.kind, block=options.block, seed=options.seed)


if __name__ == "__main__":
    main()
