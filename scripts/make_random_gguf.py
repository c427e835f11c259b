"""Write a model of any size with random weights, to measure speed and memory without a download.

    python scripts/make_random_gguf.py --preset llama-3-8b --quant Q4_K_M -o llama-3-8b.gguf
    python scripts/make_random_gguf.py --preset llama-1b --layers 4 --quant Q8_0 -o drafter.gguf

The file is a valid GGUF of the llama architecture. Its tensors have the types that llama-quantize would have
given them, so its size and its memory are those of the real model, and its speed as far as that does not
depend on the weights' values; its text is random letters. Greedy decoding never ends early: in the output
matrix the rows of the end-of-text token and of single bytes are 16 times smaller than others, so that these
tokens are never the likeliest. At temperature 1 the end has a chance of less than 1 in --vocab per token.

Files of the same --vocab may draft for each other, but agree by chance only. A drafter that is made of the
target's first layers agrees more often: the same --seed, --quant, --embd, --ff and --heads, fewer --layers.
For llama-1b in Q4_0 with --vocab 32000, on one prompt and drafting 4 tokens at a time,
llama-speculative-simple accepted 4 % of what 1 layer drafted, 24 % of 2 layers' and 70 % of 4 layers'.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path

import gguf
import numpy as np
from random_gguf.blocks import Tiles
from random_gguf.shapes import PRESETS, Shape, Tensor, tensors
from random_gguf.types import BASE, block, tensor_type
from random_gguf.vocabulary import SILENT, SMALLEST, add_vocabulary

_QUIET = 1 / 16
_ALIGNMENT = gguf.GGUF_DEFAULT_ALIGNMENT


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    try:
        shape = _shape(options)
    except ValueError as error:
        parser.error(str(error))
    types = {tensor: tensor_type(tensor, shape, options.quant) for tensor in tensors(shape)}
    size = sum(_bytes(tensor, kind) for tensor, kind in types.items())
    if options.dry_run:
        print("".join(f"{tensor.name} {kind}\n" for tensor, kind in types.items()), end="")
    else:
        folder = options.output.resolve().parent
        if not folder.is_dir():
            parser.error(f"there is no folder {folder}")
        free = shutil.disk_usage(folder).free
        if free < size:
            parser.error(f"{size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB are free")
        write(options.output, shape, types, options.quant, options.seed)
    counts = ", ".join(f"{n} {kind}" for kind, n in Counter(types.values()).most_common())
    n_parameters = sum(tensor.columns * tensor.all_rows for tensor in types)
    print(f"{n_parameters / 1e9:.3f} B parameters, {size / 1e9:.2f} GB of weights: {counts}", file=sys.stderr)


def write(path: Path, shape: Shape, types: dict[Tensor, str], quant: str, seed: int) -> None:
    """Write a whole model; the file has its name only when it is complete."""
    partial = path.with_name(path.name + ".partial")
    writer = _header(shape, types, quant, seed)
    try:
        writer.write_header_to_file(partial)
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        assert writer.fout is not None
        file = writer.fout[0]
        writer.write_padding(file, file.tell())
        tiles = Tiles(seed)
        for tensor, kind in types.items():
            for piece in _weights(tensor, kind, shape, tiles):
                file.write(piece)
            writer.write_padding(file, _bytes(tensor, kind))
        writer.close()
        partial.replace(path)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)


def _weights(tensor: Tensor, kind: str, shape: Shape, tiles: Tiles) -> Iterator[memoryview]:
    """Yield a tensor's bytes.

    Weights of variance 1/columns keep what passes through at its size. What a layer adds becomes less from
    layer to layer, so that a drafter of the first layers often agrees.
    """
    if tensor.is_norm:
        yield memoryview(np.ones(tensor.columns, "<f4").tobytes())
        return
    row_blocks = tensor.columns // block(kind)[0]
    std = tensor.columns**-0.5
    if tensor.layer is not None and tensor.role.removesuffix("_exps") in {"attn_output", "ffn_down"}:
        std /= min(2**tensor.layer, 32)  # less would be too small for 16-bit scales
    quiet = SILENT if tensor.role == ("token_embd" if shape.tied else "output") else 0
    yield from tiles.pieces(tensor.name + " quiet", kind, quiet * row_blocks, std * _QUIET)
    yield from tiles.pieces(tensor.name, kind, (tensor.all_rows - quiet) * row_blocks, std)


def _header(shape: Shape, types: dict[Tensor, str], quant: str, seed: int) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(None, "llama")
    writer.add_name(f"random {quant}, seed {seed}")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.embd)
    writer.add_feed_forward_length(shape.ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if shape.head_width:
        writer.add_key_length(shape.head_width)
        writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    if shape.experts and shape.experts_used:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    names = {kind.name.split("_", 1)[1]: kind for kind in gguf.LlamaFileType if kind.name != "GUESSED"}
    writer.add_file_type(names[quant])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_vocabulary(writer, shape.vocab)
    for tensor, kind in types.items():
        stacked = (tensor.experts,) if tensor.role.endswith("_exps") else ()
        sizes = (tensor.columns,) if tensor.is_norm else (*stacked, tensor.rows, tensor.columns)
        writer.add_tensor_info(
            tensor.name,
            sizes,
            np.dtype(np.float32),
            _bytes(tensor, kind),
            raw_dtype=gguf.GGMLQuantizationType[kind],
        )
    return writer


def _bytes(tensor: Tensor, kind: str) -> int:
    elements, size = block(kind)
    return tensor.columns // elements * size * tensor.all_rows


def _shape(options: argparse.Namespace) -> Shape:
    """Return the preset with what was asked for instead.

    Raises:
        ValueError: something is missing, or llama.cpp cannot run such a model.
    """
    given = {field.name: getattr(options, field.name) for field in fields(Shape)}
    given = {name: value for name, value in given.items() if value is not None}
    if options.preset:
        shape = replace(PRESETS[options.preset], **given)
    else:
        missing = [name for name in ("layers", "embd", "ff", "heads") if name not in given]
        if missing:
            raise ValueError(f"give --preset, or also {' '.join('--' + name for name in missing)}")
        shape = Shape(**{"kv_heads": given["heads"], "vocab": 32000, "context": 4096, **given})
    if min(value for value in asdict(shape).values() if value is not None and value is not False) < 1:
        raise ValueError("every size must be at least 1")
    if (shape.experts is None) != (shape.experts_used is None):
        raise ValueError("--experts and --experts-used go together")
    if (shape.experts_used or 0) > (shape.experts or 0):
        raise ValueError("--experts-used is more than --experts")
    is_uneven = not shape.head_width and shape.embd % shape.heads
    if shape.head_dim % 2 or is_uneven or shape.heads % shape.kv_heads:
        raise ValueError(
            "--embd must be an even multiple of --heads without an even --head-width, and --heads a multiple "
            "of --kv-heads"
        )
    if shape.vocab < SMALLEST:
        raise ValueError(f"--vocab must be at least {SMALLEST}, so that it holds any text")
    return shape


def _parser() -> argparse.ArgumentParser:
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        usage="\n       ".join(line.strip() for line in text.splitlines()[2:4]),
        description=text.partition("\n")[0],
        epilog=text.partition("drafter.gguf\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--preset", choices=PRESETS, help="sizes of a known model; options change single ones"
    )
    parser.add_argument(
        "--quant",
        type=str.upper,
        choices=BASE,
        default="Q4_K_M",
        metavar="TYPE",
        help=f"file type, by default Q4_K_M; one of {', '.join(BASE)}",
    )
    sizes = {"layers": "layers", "embd": "width", "ff": "width of the feed-forward network"}
    sizes |= {
        "heads": "query heads",
        "kv-heads": "key and value heads",
        "vocab": "tokens",
        "context": "trained length",
        "experts": "experts of each layer: a mixture, and --ff is the width of one",
        "experts-used": "experts that each token uses",
        "head-width": "width of a head, where all together are not as wide as the model",
    }
    for name, text in sizes.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--rope-base", type=float, metavar="X", help="base of the rotary positions")
    parser.add_argument(
        "--tied", action=argparse.BooleanOptionalAction, help="the embedding is the output matrix too"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="by default 0; the same seed writes the same bytes"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list the tensors and their types, write nothing"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("random.gguf"),
        metavar="FILE",
        help="by default random.gguf",
    )
    return parser


if __name__ == "__main__":
    main()
