"""Write checkpoints in Hugging Face's format: safetensors, configurations, and sentencepiece tokenizers.

One of them is a small EAGLE-3 head with known values. The newest PyTorch is not always the one that a
llama.cpp was written for. A converter is therefore used only after it has converted this head to exactly the
bytes that its values have in a GGUF.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
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
    model = b""
    for piece in pieces:
        score = _varint(2 << 3 | 5) + struct.pack("<f", piece.score)
        model += _field(1, _field(1, piece.text.encode()) + score + _number(3, piece.type))
    model += _field(2, _number(3, _BPE) + _number(35, 1))  # trainer_spec: model_type, byte_fallback
    model += _field(3, _field(1, b"identity"))  # normalizer_spec: name
    (folder / "tokenizer.model").write_bytes(model)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    low = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return low + _varint(value >> 7) if value > 0x7F else low


ARCHITECTURE = "LlamaForCausalLMEagle3"

_WIDTH, _FEED_FORWARD, _HEADS, _KV_HEADS = 64, 128, 4, 2
_KV_WIDTH = _WIDTH // _HEADS * _KV_HEADS
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DRAFTED = 64  # tokens of the head's own vocabulary
_SHAPES = {
    "fc": (_WIDTH, 3 * _WIDTH),
    "midlayer.hidden_norm": (_WIDTH,),
    "midlayer.input_layernorm": (_WIDTH,),
    "midlayer.post_attention_layernorm": (_WIDTH,),
    "midlayer.self_attn.q_proj": (_WIDTH, 2 * _WIDTH),
    "midlayer.self_attn.k_proj": (_KV_WIDTH, 2 * _WIDTH),
    "midlayer.self_attn.v_proj": (_KV_WIDTH, 2 * _WIDTH),
    "midlayer.self_attn.o_proj": (_WIDTH, _WIDTH),
    "midlayer.mlp.gate_proj": (_FEED_FORWARD, _WIDTH),
    "midlayer.mlp.up_proj": (_FEED_FORWARD, _WIDTH),
    "midlayer.mlp.down_proj": (_WIDTH, _FEED_FORWARD),
    "norm": (_WIDTH,),
    "lm_head": (_DRAFTED, _WIDTH),
}
_CONTROL = (
    Piece(text="<unk>", type=PieceType.UNKNOWN),
    Piece(text="<s>", type=PieceType.CONTROL),
    Piece(text="</s>", type=PieceType.CONTROL),
)
_BYTES = tuple(Piece(text=f"<0x{byte:02X}>", type=PieceType.BYTE) for byte in range(256))
_PIECES = (*_CONTROL, *_BYTES, *(Piece(text=letter, score=-1.0) for letter in _LETTERS))


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """Folders of a head and its target, and the bytes of each tensor in a GGUF of F32 values, by its name."""

    head: Path
    target: Path
    tensors: dict[str, bytes]

    def missing(self, converted: bytes) -> Iterator[str]:
        """Yield the names of the tensors whose values a converted file does not contain."""
        return (name for name, values in self.tensors.items() if values not in converted)


def write_specimen(folder: Path) -> Specimen:
    """Write the head and its target into a folder."""
    head, target = folder / "head", folder / "target"
    for part in (head, target):
        part.mkdir(parents=True)
    sizes: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": _WIDTH,
        "intermediate_size": _FEED_FORWARD,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "vocab_size": len(_PIECES),
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
    }
    write_config(target, {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 8, **sizes})
    write_tokenizer(target, _PIECES)
    named = {"architectures": [ARCHITECTURE], "num_hidden_layers": 1, "draft_vocab_size": _DRAFTED}
    write_config(head, {**named, **sizes})
    tensors = dict(_tensors())
    write_weights(head / "model.safetensors", tensors)
    return Specimen(
        head=head,
        target=target,
        tensors={name: _converted(name, tensor) for name, tensor in tensors.items() if name != "t2d"},
    )


def _tensors() -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of an EAGLE-3 head with a vocabulary of its own, under their published names."""
    rng = np.random.default_rng(3)
    for name, shape in _SHAPES.items():
        yield f"{name}.weight", rng.standard_normal(shape, np.float32)
    drafted = np.sort(rng.choice(len(_PIECES), _DRAFTED, replace=False)).astype(np.int64)
    yield "d2t", drafted - np.arange(_DRAFTED)  # how far each token's id moves
    yield "t2d", np.isin(np.arange(len(_PIECES)), drafted)


def _converted(name: str, tensor: NDArray[Any]) -> bytes:
    """Return a tensor's bytes in a GGUF: rotary rows reordered, and absolute ids in d2t."""
    if name == "d2t":
        return (tensor + np.arange(_DRAFTED)).tobytes()
    for role, heads in {"q_proj": _HEADS, "k_proj": _KV_HEADS}.items():
        if role in name:
            rows = len(tensor) // heads
            tensor = tensor.reshape(heads, 2, rows // 2, -1).swapaxes(1, 2).reshape(tensor.shape)
    return tensor.tobytes()
