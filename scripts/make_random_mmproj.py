"""Write a small projector with random weights, with which llama-server reads images for a target.

    python scripts/make_random_mmproj.py models/demo/target.gguf -o mmproj.gguf

An image becomes four tokens, which say nothing of what it shows: the file shows the way that images go, in
real programs and without a download, and how drafting goes on behind them. It is a LLaVA of two layers (the
projector ``mlp`` in tools/mtmd/clip.cpp).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import gguf
from make_random_head import Target, TensorShape, write_tensors

IMAGE, PATCH, EMBD, FF, HEADS, LAYERS = 28, 14, 32, 64, 2, 2


def tensors(target: Target) -> Iterator[tuple[str, TensorShape]]:
    yield "v.patch_embd.weight", (PATCH, PATCH, 3, EMBD)
    yield "v.position_embd.weight", (EMBD, (IMAGE // PATCH) ** 2)
    for block in (f"v.blk.{layer}" for layer in range(LAYERS)):
        for part in ("q", "k", "v", "out"):
            yield f"{block}.attn_{part}.weight", (EMBD, EMBD)
        for norm in ("ln1", "ln2"):
            yield from ((f"{block}.{norm}.{part}", (EMBD,)) for part in ("weight", "bias"))
        yield f"{block}.ffn_up.weight", (EMBD, FF)
        yield f"{block}.ffn_down.weight", (FF, EMBD)
    for number, width in ((0, EMBD), (2, target.embd)):
        yield f"mm.{number}.weight", (width, target.embd)
        yield f"mm.{number}.bias", (target.embd,)


def write(path: Path, target: Target, *, seed: int) -> None:
    """Write a projector for a target."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_name(f"random projector, seed {seed}")
    writer.add_string("clip.projector_type", "mlp")
    for key in ("has_vision_encoder", "use_gelu"):
        writer.add_bool(f"clip.{key}", val=True)
    sizes = {"image_size": IMAGE, "patch_size": PATCH, "embedding_length": EMBD, "feed_forward_length": FF}
    sizes |= {"block_count": LAYERS, "projection_dim": target.embd, "attention.head_count": HEADS}
    for key, size in sizes.items():
        writer.add_uint32(f"clip.vision.{key}", size)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for key in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{key}", [0.5, 0.5, 0.5])
    write_tensors(writer, tensors(target), seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, help="GGUF of the target")
    parser.add_argument(
        "--seed", type=int, default=0, help="by default 0; the same seed writes the same bytes"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    write(options.output, Target(options.target), seed=options.seed)


if __name__ == "__main__":
    main()
