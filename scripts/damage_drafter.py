"""Write a drafter with a known fault, or another target of the same width, to see whether it is found.

    python scripts/damage_drafter.py models/demo/eagle3.gguf --fault shuffled -o broken.gguf
    python scripts/damage_drafter.py models/demo/target.gguf --fault other-target -o other.gguf

``other-target`` is for a target: it writes the same text, and its hidden states lie in another order, so that
heads which were trained for the first one read states that mean nothing to them.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[Any]  # of a tensor: one row after the other, as they are stored

WEIGHTS = ("blk.*.weight", "fc.weight")
TOKENS = ("output.weight", "d2t", "token_embd.weight")  # the first that there is: it names tokens
FAULTS = ("shuffled", "zeroed", "flipped", "misquantized", "token-map", "other-target")
_GROUP = 32  # weights of a block of Q8_0; columns change places in groups of them


def shuffle(tensor: gguf.ReaderTensor) -> Bytes:
    """Put rows in another order: those of a layer's output."""
    return tensor.data[np.random.default_rng(1).permutation(len(tensor.data))]


def zero(tensor: gguf.ReaderTensor) -> Bytes:
    return np.zeros_like(tensor.data)


def flip(tensor: gguf.ReaderTensor) -> Bytes:
    """Change all signs: of blocks, it is that of their scale."""
    if tensor.data.dtype != np.uint8:
        return -tensor.data
    blocks = _blocks(tensor).copy()
    blocks[..., 1] ^= 0x80  # the upper byte of the half-precision scale, which comes first
    return blocks.reshape(tensor.data.shape)


def misquantize(tensor: gguf.ReaderTensor) -> Bytes:
    """Store weights where a reader expects their neighbours, as a converter does with another layout."""
    if tensor.data.dtype != np.uint8:
        return np.roll(tensor.data, 1, axis=-1)
    blocks = _blocks(tensor).copy()
    blocks[..., 2:] = np.roll(blocks[..., 2:], 1, axis=-1)
    return blocks.reshape(tensor.data.shape)


_CHANGES: dict[str, tuple[tuple[str, ...], Callable[[gguf.ReaderTensor], Bytes]]] = {
    "shuffled": (WEIGHTS, shuffle),
    "zeroed": (WEIGHTS, zero),
    "flipped": (WEIGHTS, flip),
    "misquantized": (WEIGHTS, misquantize),
    "token-map": (TOKENS, shuffle),
}


def damage(source: Path, fault: str, out: Path, tensors: str | None = None) -> Path:
    """Write a copy of a model with a fault in its weights, in all matrices that it is about or in some."""
    shutil.copyfile(source, out)
    reader = gguf.GGUFReader(out, "r+")
    if fault == "other-target":
        _reorder_states(reader)
    else:
        patterns, change = _CHANGES[fault]
        names = [tensor.name for tensor in reader.tensors]
        if fault == "token-map":
            patterns = next(((name,) for name in patterns if name in names), ())
        wanted = (tensors,) if tensors else patterns
        changed = [
            tensor
            for tensor in reader.tensors
            if (tensor.data.ndim > 1 or tensor.name == "d2t")
            and any(fnmatch.fnmatch(tensor.name, pattern) for pattern in wanted)
        ]
        if not changed:
            raise SystemExit(f"{source} has no tensor for the fault {fault}")
        for tensor in changed:
            tensor.data[:] = change(tensor)
    reader.data.flush()
    return out


def _blocks(tensor: gguf.ReaderTensor) -> Bytes:
    size = gguf.GGML_QUANT_SIZES[tensor.tensor_type][1]
    return tensor.data.reshape(*tensor.data.shape[:-1], -1, size)


def _reorder_states(reader: gguf.GGUFReader) -> None:
    """Give the hidden states another order everywhere: what the model computes stays the same."""
    width = int(reader.fields["llama.embedding_length"].contents())
    order = np.random.default_rng(2).permutation(width // _GROUP)
    rows = (order[:, None] * _GROUP + np.arange(_GROUP)).ravel()
    for tensor in reader.tensors:
        if tensor.name.endswith(("attn_output.weight", "ffn_down.weight")):  # write states
            tensor.data[:] = tensor.data[rows]
        elif tensor.data.ndim == 1:
            if tensor.name.endswith("norm.weight"):
                tensor.data[:] = tensor.data[rows]
        else:  # read states
            groups = tensor.data.reshape(len(tensor.data), width // _GROUP, -1)
            tensor.data[:] = groups[:, order].reshape(tensor.data.shape)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--fault", choices=FAULTS, required=True)
    parser.add_argument("--tensors", help="only those whose names match, such as 'blk.0.attn_*'")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    print(damage(asked.model, asked.fault, asked.out, asked.tensors))


if __name__ == "__main__":
    main()
