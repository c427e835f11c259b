"""Write checkpoints in Hugging Face's format: safetensors, configurations, and sentencepiece tokenizers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}
_ALIGNMENT_BYTES = 8  # of the header of a safetensors file
_BPE = 2  # ModelType of sentencepiece_model.proto


class PieceType(IntEnum):
    """What a token is; the numbers are those of sentencepiece_model.proto and of GGUF."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A token of a sentencepiece tokenizer."""

    text: str
    score: float = 0.0
    type: PieceType = PieceType.NORMAL


def write_weights(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write a safetensors file: the length of its header, the header as JSON, the tensors."""
    header, offset = dict[str, Any](), 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": _TYPES[tensor.dtype.name],
            "shape": tensor.shape,
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def write_config(folder: Path, config: Mapping[str, Any], name: str = "config.json") -> None:
    """Write a configuration."""
    (folder / name).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder: Path, pieces: Iterable[Piece]) -> None:
    """Write tokenizer.model, a BPE with byte fallback, as Protocol Buffers encode a ModelProto."""
    model = b"".join(_field(1, _encode_piece(piece)) for piece in pieces)
    model += _field(2, _number(3, _BPE) + _number(35, 1))  # trainer_spec: model_type, byte_fallback
    model += _field(3, _field(1, b"identity"))  # normalizer_spec: name
    (folder / "tokenizer.model").write_bytes(model)


def _encode_piece(piece: Piece) -> bytes:
    score = _varint(2 << 3 | 5) + struct.pack("<f", piece.score)
    return _field(1, piece.text.encode()) + score + _number(3, piece.type)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + _varint(value >> 7) if value > 0x7F else low
