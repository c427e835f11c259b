"""GGUFs of any shape for tests: true headers, and weights that are zeros in a hole that costs no disk.

Zeros are valid in every tensor type, so llama.cpp loads and runs such a model like any other.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ggufspec.modelfiles.gguf import TYPES_BY_NAME, ModelCard, StringArray
from ggufspec.modelfiles.gguf.card import build_card
from ggufspec.modelfiles.gguf.reader import GGML_TYPES, read_header

ALIGNMENT = 32
_NUMBER_OF_TYPE = {kind.name: number for number, kind in GGML_TYPES.items()}
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_NUMBER_OF_CODE = {code: number for number, code in _CODES.items()}

Value: TypeAlias = "str | int | float | bool | Sequence[str] | Sequence[float] | StringArray | array[Any]"
TensorSpec = tuple[str, tuple[int, ...], str]  # name, shape (row length first), type
Types = Callable[[str], str]
Model = tuple[dict[str, Value], list[TensorSpec]]


def write_model(path: Path, metadata: Mapping[str, Value], tensors: Iterable[TensorSpec]) -> Path:
    """Write a whole model with zeros for weights."""
    header, data_bytes = encode(metadata, list(tensors))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + data_bytes)
    return path


def card(model: Model, **changes: Value) -> ModelCard:
    """Return the card of a model that is in no file; ``changes`` are further keys of its header."""
    metadata, tensors = model
    return parse(Memory(encode(metadata | changes, tensors)[0]))


def parse(source: Memory) -> ModelCard:
    """Return the card of a header, of which the weights may be missing."""
    return build_card(read_header(source, "m.gguf"), source="m.gguf", size_bytes=source.size)


def renamed(model: Model, architecture: str) -> Model:
    """Return a model of the llama architecture under another one's name."""
    metadata, tensors = model
    metadata = {key.replace("llama.", f"{architecture}.", 1): value for key, value in metadata.items()}
    return metadata | {"general.architecture": architecture}, tensors


def encode(metadata: Mapping[str, Value], tensors: Sequence[TensorSpec] = ()) -> tuple[bytes, int]:
    """Return a header, padded to where the data begins, and the size of the data."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        out += [_string(key), _value(value)]
    offset = 0
    for name, shape, kind in tensors:
        sizes = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _NUMBER_OF_TYPE[kind], offset)
        out += [_string(name), sizes]
        offset += _padded(_tensor_bytes(shape, kind))
    header = b"".join(out)
    return header.ljust(_padded(len(header)), b"\0"), offset


def llama(
    *,
    n_layers: int = 2,
    n_embd: int = 64,
    n_ff: int = 128,
    n_heads: int = 4,
    n_heads_kv: int | None = None,
    context: int = 256,
    vocabulary: Mapping[str, Value] | None = None,
    tied: bool = False,
    n_experts: int = 0,
    types: Types = lambda name: "F16",
    **extra: Value,
) -> Model:
    """Return the metadata and the tensors of a model of the llama architecture.

    Args:
        n_layers: transformer layers.
        n_embd: width.
        n_ff: width of the feed-forward layers.
        n_heads: query heads.
        n_heads_kv: key and value heads, if fewer.
        context: the length it was trained for.
        vocabulary: the ``tokenizer.`` keys; 64 made-up tokens if not given.
        tied: leave out output.weight, so that the embedding serves for both.
        n_experts: experts per layer, of which two are used, instead of one feed-forward network.
        types: tensor name -> type of its weights; norms are always F32.
        extra: further keys of the architecture, with ``__`` for dots.
    """
    vocabulary = tokens(64) if vocabulary is None else vocabulary
    listed = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(listed, Sequence | StringArray)
    n_heads_kv = n_heads_kv or n_heads
    n_kv = n_embd // n_heads * n_heads_kv
    metadata: dict[str, Value] = {
        "general.architecture": "llama",
        "general.name": "made up",
        "llama.block_count": n_layers,
        "llama.context_length": context,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_heads_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": n_embd // n_heads,
        **({"llama.expert_count": n_experts, "llama.expert_used_count": 2} if n_experts else {}),
        **{f"llama.{key.replace('__', '.')}": value for key, value in extra.items()},
        **vocabulary,
    }
    matrices: list[tuple[str, tuple[int, ...]]] = [("token_embd", (n_embd, len(listed)))]
    if not tied:
        matrices.append(("output", (n_embd, len(listed))))
    for layer in range(n_layers):
        matrices += [
            (f"blk.{layer}.attn_q", (n_embd, n_embd)),
            (f"blk.{layer}.attn_k", (n_embd, n_kv)),
            (f"blk.{layer}.attn_v", (n_embd, n_kv)),
            (f"blk.{layer}.attn_output", (n_embd, n_embd)),
        ]
        experts = (n_experts,) if n_experts else ()
        suffix = "_exps" if n_experts else ""
        matrices += [
            (f"blk.{layer}.ffn_gate{suffix}", (n_embd, n_ff, *experts)),
            (f"blk.{layer}.ffn_up{suffix}", (n_embd, n_ff, *experts)),
            (f"blk.{layer}.ffn_down{suffix}", (n_ff, n_embd, *experts)),
        ]
    norms = ["output_norm", *(f"blk.{i}.{which}_norm" for i in range(n_layers) for which in ("attn", "ffn"))]
    specs = [(f"{name}.weight", shape, types(name)) for name, shape in matrices]
    specs += [
        (f"blk.{i}.ffn_gate_inp.weight", (n_embd, n_experts), "F32") for i in range(n_layers) if n_experts
    ]
    return metadata, specs + [(f"{name}.weight", (n_embd,), "F32") for name in norms]


def gemma3(
    *,
    n_layers: int,
    n_embd: int,
    n_ff: int,
    n_heads: int,
    n_heads_kv: int,
    head: int,
    window: int,
    **rest: Any,
) -> Model:
    """Return a model whose layers look back over a window, but for every sixth; its embedding is tied."""
    sizes: dict[str, Any] = {"n_layers": n_layers, "n_embd": n_embd, "n_ff": n_ff, "n_heads": n_heads}
    metadata, specs = renamed(llama(**sizes, **rest, n_heads_kv=n_heads_kv, tied=True), "gemma3")
    metadata |= {
        "gemma3.attention.key_length": head,
        "gemma3.attention.value_length": head,
        "gemma3.attention.sliding_window": window,
    }
    del metadata["gemma3.rope.dimension_count"]
    widths = {"attn_q": n_heads * head, "attn_k": n_heads_kv * head, "attn_v": n_heads_kv * head}
    shaped: list[TensorSpec] = []
    for name, shape, kind in specs:
        part = name.split(".")[-2]
        if part in widths:
            shape = (n_embd, widths[part])
        elif part == "attn_output":
            shape = (n_heads * head, n_embd)
        shaped.append((name, shape, kind))
    for layer in range(n_layers):
        for norm in ("post_attention_norm", "post_ffw_norm"):
            shaped.append((f"blk.{layer}.{norm}.weight", (n_embd,), "F32"))
        for norm in ("attn_q_norm", "attn_k_norm"):
            shaped.append((f"blk.{layer}.{norm}.weight", (head,), "F32"))
    return metadata, shaped


def eagle3(
    *, n_embd: int = 64, target_layers: tuple[int, ...] = (1, 1, 1), width: int = 64, vocabulary: int = 64
) -> Model:
    """Return an EAGLE-3 head that reads these layers of a target of this width."""
    return _head("eagle3", n_embd, target_layers, vocabulary, {"target_hidden_size": width})


def dflash(
    *,
    n_embd: int = 64,
    target_layers: tuple[int, ...] = (1, 1, 1),
    block: int = 8,
    markov: bool = False,
    vocabulary: int = 64,
    **extra: Value,
) -> Model:
    """Return a DFlash head, or with ``markov`` a DSpark head; ``extra`` are further keys."""
    metadata, specs = _head("dflash", n_embd, target_layers, vocabulary, {"block_size": block, **extra})
    metadata = metadata | {"tokenizer.ggml.mask_token_id": 0}
    return metadata, specs + ([("markov_w1.weight", (4, vocabulary), "F16")] if markov else [])


def _head(
    arch: str, n_embd: int, target_layers: tuple[int, ...], vocabulary: int, keys: Mapping[str, Value]
) -> Model:
    metadata, specs = renamed(llama(n_layers=1, n_embd=n_embd, vocabulary=tokens(vocabulary)), arch)
    metadata |= {f"{arch}.{key}": value for key, value in {**keys, "target_layers": [*target_layers]}.items()}
    layers = [spec for spec in specs if not spec[0].startswith(("token_embd", "output.weight"))]
    return metadata, [*layers, ("fc.weight", (n_embd * len(target_layers), n_embd), "F16")]


def with_mtp(
    *, n_layers: int = 3, n_mtp: int = 1, alone: bool = False, stripped: bool = False, **rest: Any
) -> Model:
    """Return a model whose last layers are for MTP; its architecture is llama, which has none in reality.

    Args:
        n_layers: all layers.
        n_mtp: how many of them are for MTP.
        alone: the file has nothing but these layers.
        stripped: the file lacks the weights that only such layers have.
        rest: as for ``llama``.
    """
    metadata, specs = llama(n_layers=n_layers, nextn_predict_layers=n_mtp, **rest)
    last = tuple(f"blk.{layer}." for layer in range(n_layers - n_mtp, n_layers))
    if alone:
        specs = [spec for spec in specs if not spec[0].startswith("blk.") or spec[0].startswith(last)]
    n_embd = int(str(metadata["llama.embedding_length"]))
    nextn = [(f"{prefix}nextn.eh_proj.weight", (2 * n_embd, n_embd), "F16") for prefix in last]
    return metadata, specs + ([] if stripped else nextn)


def tokens(count: int, **special: Value) -> dict[str, Value]:
    """Return the keys of a SentencePiece-like vocabulary: three special tokens, the bytes, then words.

    Args:
        count: how many tokens; 260 and more hold every byte, so that llama.cpp can tokenize any text.
        special: further ``tokenizer.ggml.`` keys.
    """
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    texts += [f"▁w{number}" for number in range(count - len(texts))]
    kinds = [2, 3, 3, *[6] * 256, *[1] * max(0, count - 259)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts[:count],
        "tokenizer.ggml.scores": [-float(number) for number in range(count)],
        "tokenizer.ggml.token_type": kinds[:count],
        **{f"tokenizer.ggml.{key}": value for key, value in special.items()},
    }


def _tensor_bytes(shape: tuple[int, ...], kind: str) -> int:
    size = TYPES_BY_NAME[kind].row_bytes(shape[0])
    for dimension in shape[1:]:
        size *= dimension
    return size


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, StringArray):
        return _array(8, len(value), b"".join(_string(value[i]) for i in range(len(value))))
    if isinstance(value, array):
        return _array(_NUMBER_OF_CODE[value.typecode], len(value), value.tobytes())
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, Sequence):
        if not value or isinstance(value[0], str):
            return _array(8, len(value), b"".join(_string(str(text)) for text in value))
        code = {bool: "?", int: "i", float: "f"}[type(value[0])]
        return _array(_NUMBER_OF_CODE[code], len(value), struct.pack(f"<{len(value)}{code}", *value))
    code = {bool: "?", int: "I", float: "f"}[type(value)]
    return struct.pack("<I" + code, _NUMBER_OF_CODE[code], value)


def _array(kind: int, count: int, payload: bytes) -> bytes:
    return struct.pack("<IIQ", 9, kind, count) + payload


class Memory:
    """A GGUF in memory, as a source of its header; counts the bytes that were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.bytes_read = 0

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, n: int, /) -> bytes:
        self.bytes_read += len(self.content[offset : offset + n])
        return self.content[offset : offset + n]
