"""Random bytes that decode to small finite weights, in every tensor type of the table.

A tile holds some 16 MiB of blocks (floats: 4 MiB): the quantized payload is random, the scales are the same
in every block but for their signs, and set so that the weights have the standard deviation that is asked
for. A tensor is the tile again and again, begun at a place of its own. The number of blocks in a tile is
prime, so that no two of a tensor's first 131,071 rows are the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from gguf import GGMLQuantizationType, dequantize
from numpy.typing import NDArray

from random_gguf.types import block

_TILE_BYTES = 16 << 20
_FEWEST = 131_071  # blocks: prime, and more rows than the largest vocabulary here has
_FLOATS_IN_TILE = 1_048_583  # prime; fewer bytes, because they are scaled anew for each tensor
_MEASURED = 4096  # blocks that are decoded to see how large weights are at scale 1

# where a block keeps its scale; what is subtracted or added, and the ratio that makes the mean zero
_SCALE_AT = {"Q2_K": 80, "Q3_K": 108, "Q6_K": 208, "TQ1_0": 52, "TQ2_0": 64}
_MIN_AT = {"Q4_1": (2, -7.5), "Q5_1": (2, -15.5), "Q2_K": (82, 1.5), "Q4_K": (2, 7.5), "Q5_K": (2, 15.5)}
_SIGN = 0x8000


class Tiles:
    """Tiles of random blocks, one per tensor type; the same seed gives the same bytes."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._payloads: dict[str, NDArray[np.uint8]] = {}
        self._units: dict[str, float] = {}

    def pieces(self, name: str, kind: str, n_blocks: int, std: float) -> Iterator[memoryview]:
        """Yield the bytes of so many blocks, which are those of the tensor ``name``.

        Args:
            name: decides where in the tile to begin.
            kind: the tensor type.
            n_blocks: how many blocks to yield altogether.
            std: the standard deviation of the weights, whose mean is zero.
        """
        tile = self._tile(kind, std)
        position = zlib.crc32(name.encode()) % len(tile)
        while n_blocks:
            taken = min(n_blocks, len(tile) - position)
            yield tile[position : position + taken].data.cast("B")
            n_blocks, position = n_blocks - taken, 0

    def _tile(self, kind: str, std: float) -> NDArray[np.uint8]:
        """Return blocks [n_blocks, block_bytes]; the next call may change them."""
        if kind not in self._payloads:
            self._payloads[kind] = self._payload(kind)
            if kind not in _FLOATS:
                sample = self._payloads[kind][:_MEASURED].copy()
                _scale(sample, kind, 1.0)
                weights = dequantize(sample, GGMLQuantizationType[kind])
                self._units[kind] = float(np.sqrt(np.mean(np.square(weights))))
        payload = self._payloads[kind]
        if kind in _FLOATS:
            scaled: NDArray[np.uint8] = _FLOATS[kind](payload.view(np.float32) * np.float32(std))
            return scaled
        _scale(payload, kind, std / self._units[kind])
        return payload

    def _payload(self, kind: str) -> NDArray[np.uint8]:
        _, size = block(kind)
        rng = np.random.default_rng([self._seed, zlib.crc32(kind.encode())])
        if kind in _FLOATS:
            return rng.standard_normal((_FLOATS_IN_TILE, 1), dtype=np.float32).view(np.uint8)
        n_blocks = _next_prime(max(_FEWEST, _TILE_BYTES // size))
        return np.frombuffer(bytearray(rng.bytes(n_blocks * size)), np.uint8).reshape(n_blocks, size)


def _scale(blocks: NDArray[np.uint8], kind: str, scale: float) -> None:
    """Set the scales of all blocks, but for their signs: those stay as random as they are.

    Without random signs a matrix would have a mean (the values of Q4_0 go from -8 to 7), and a mean is
    amplified from layer to layer until every token looks alike.
    """
    bits = _bits(scale)
    if kind == "IQ1_M":  # the four highest bits of each of four numbers
        parts = blocks[:, 48:].view("<u2")
        parts &= np.array([0x0FFF, 0x0FFF, 0x0FFF, 0x0FFF | _SIGN], "<u2")
        parts |= np.array([(bits >> shift & 0xF) << 12 for shift in (0, 4, 8, 12)], "<u2")
        return
    at = _SCALE_AT.get(kind, 0)
    minimum_at, ratio = _MIN_AT.get(kind, (at, 1.0))
    layout = np.dtype(
        {
            "names": ["min", "scale"],
            "formats": ["<u2", "<u2"],
            "offsets": [minimum_at, at],
            "itemsize": blocks.shape[1],
        }
    )
    fields = blocks.view(layout)
    signs = fields["scale"] & _SIGN
    fields["min"] = signs ^ _bits(scale * ratio)
    fields["scale"] = signs | bits


def _bits(number: float) -> int:
    """Return a number as ggml's 16-bit float."""
    return int(np.float16(number).view(np.uint16))


_FLOATS = {
    "F32": lambda weights: weights.view(np.uint8),
    "F16": lambda weights: weights.astype("<f2").view(np.uint8),
    "BF16": lambda weights: (weights.view("<u4") >> 16).astype("<u2").view(np.uint8),
}


def _next_prime(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number
