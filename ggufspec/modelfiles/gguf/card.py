"""ModelCard: the properties of a model that ggufspec uses, from its header."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from ggufspec.errors import ModelFileError
from ggufspec.modelfiles.gguf.reader import FILE_TYPES, Header, StringArray, Tensor, Value

_T = TypeVar("_T", int, float, str, bool)
_MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
_SHOWN_SHARE = 0.05  # of the bytes, from which a type is named
_ARCHITECTURE = re.compile(r"[\w.-]{1,64}")
_AGAIN = "download the file again"
PROJECTOR_ARCHITECTURE = "clip"
"""What the header of a file that reads images says, whatever the models are that it is for."""
_NOT_LANGUAGE_MODELS = {"adapter", "mmproj", "imatrix", "control_vector"}  # values of general.type


@dataclass(frozen=True, kw_only=True, eq=False)
class Vocabulary:
    """The tokenizer's part of a header. What the file does not state is None."""

    model: str | None  # tokenizer.ggml.model: llama, gpt2, ...
    pre: str | None
    tokens: StringArray | None
    bos_id: int | None
    eos_id: int | None
    add_bos: bool | None
    add_eos: bool | None

    @property
    def n_tokens(self) -> int:
        """How many tokens the file lists."""
        return 0 if self.tokens is None else len(self.tokens)


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which part of a model in several files this is, counted from 0."""

    no: int
    count: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCard:
    """A model as its header describes it; per-layer values have one entry per layer.

    ``metadata`` holds every key of the header, for keys that only one architecture has.
    """

    architecture: str
    name: str | None
    quant: str | None  # the usual name: Q3_K_S
    n_layers: int
    context_length: int
    n_embd: int
    n_ff: tuple[int, ...]
    n_heads: tuple[int, ...]
    n_heads_kv: tuple[int, ...]
    key_length: int
    value_length: int
    sliding_window: int | None
    n_experts: int
    n_experts_used: int
    vocabulary: Vocabulary
    chat_template: str | None
    tensors: tuple[Tensor, ...]
    size_bytes: int
    split: Split | None
    metadata: Mapping[str, Value]

    @property
    def tokenizer_model(self) -> str | None:
        """The kind of tokenizer as the file names it: ``llama``, ``gpt2``, ..."""
        return self.vocabulary.model

    @property
    def types(self) -> tuple[tuple[str, float], ...]:
        """The types of the tensors, each with its share of the bytes, the largest first."""
        sizes = _sizes_by_type(self.tensors)
        return tuple((name, size / sizes.total()) for name, size in sizes.most_common())

    @property
    def described_quant(self) -> str:
        """The quantization's name, and the types that are really there where most bytes are of another one.

        Quantizers give a tensor another type where its rows are no multiple of the type's blocks.
        """
        name = self.quant or ""
        if not self.types or name.startswith(self.types[0][0]):
            return name
        shares = [f"{share:.0%} {type_name}" for type_name, share in self.types if share >= _SHOWN_SHARE]
        return f"{name} ({', '.join(shares)})"

    @property
    def is_recurrent(self) -> bool:
        """Whether some layers keep a state (Mamba, RWKV and hybrids) that cannot be rolled back."""
        prefixes = tuple(f"{self.architecture}.{part}." for part in ("ssm", "wkv", "shortconv", "kda"))
        return any(key.startswith(prefixes) for key in self.metadata)

    def number(self, key: str) -> int | None:
        """Return what the header says of the architecture under a key; None where that is no whole number."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if type(value) is int else None


def build_card(header: Header, *, source: str, size_bytes: int) -> ModelCard:
    """Turn a header into a card.

    Args:
        header: the header of the model, or of its first part.
        source: what to call the file in messages.
        size_bytes: the size of all files of the model.

    Raises:
        ModelFileError: this is not a language model, or its header lacks a required key.
    """
    keys = _Keys(header.metadata, source)
    file_kind = keys.get("general.type", str) or "model"
    n_parts = keys.get("split.count", int) or 0
    split = Split(no=keys.get("split.no", int) or 0, count=n_parts) if n_parts > 1 else None
    if split is not None and split.no > 0:
        raise ModelFileError(
            f"{source} is part {split.no + 1} of {split.count} of a model",
            "use the first part; the others are found beside it",
        )
    arch = keys.need("general.architecture", str)
    if not _ARCHITECTURE.fullmatch(arch):
        raise ModelFileError(f"{source} is damaged: its architecture is {arch[:64]!r}", _AGAIN)
    if arch == PROJECTOR_ARCHITECTURE or file_kind in _NOT_LANGUAGE_MODELS:
        raise ModelFileError(
            f"{source} is not a language model; its type is "
            f"{file_kind if file_kind != 'model' else 'vision projector'}",
            "use the GGUF of the language model itself",
        )
    n_layers = keys.need(f"{arch}.block_count", int)
    if not 0 < n_layers <= _MAX_LAYERS:
        raise ModelFileError(f"{source} claims {n_layers} layers; llama.cpp reads 1 to {_MAX_LAYERS}")
    n_embd = keys.need(f"{arch}.embedding_length", int)
    n_heads = keys.per_layer(f"{arch}.attention.head_count", n_layers) or (0,) * n_layers
    head = n_embd // n_heads[0] if n_heads[0] > 0 else 0
    key_length = keys.get(f"{arch}.attention.key_length", int)
    value_length = keys.get(f"{arch}.attention.value_length", int)
    return ModelCard(
        architecture=arch,
        name=keys.get("general.name", str),
        quant=_quant(keys, header.tensors),
        n_layers=n_layers,
        context_length=keys.need(f"{arch}.context_length", int),
        n_embd=n_embd,
        n_ff=keys.per_layer(f"{arch}.feed_forward_length", n_layers) or (0,) * n_layers,
        n_heads=n_heads,
        n_heads_kv=keys.per_layer(f"{arch}.attention.head_count_kv", n_layers) or n_heads,
        key_length=head if key_length is None else key_length,
        value_length=head if value_length is None else value_length,
        sliding_window=keys.get(f"{arch}.attention.sliding_window", int) or None,
        n_experts=keys.get(f"{arch}.expert_count", int) or 0,
        n_experts_used=keys.get(f"{arch}.expert_used_count", int) or 0,
        vocabulary=_vocabulary(keys),
        chat_template=keys.get("tokenizer.chat_template", str),
        tensors=header.tensors,
        size_bytes=size_bytes,
        split=split,
        metadata=header.metadata,
    )


class _Keys:
    """Typed look-ups: a key of another type than the format asks for is an error that names the key."""

    def __init__(self, metadata: Mapping[str, Value], source: str) -> None:
        self._metadata = metadata
        self._source = source

    def get(self, key: str, expected_type: type[_T]) -> _T | None:
        value = self._metadata.get(key)
        if value is None:
            return None
        if isinstance(value, int) and value < 0:
            raise self._wrong(key, f"is {value}")
        if type(value) is not expected_type:  # not isinstance: True is an int
            raise self._wrong(key, f"is not of type {expected_type.__name__}")
        return value

    def need(self, key: str, expected_type: type[_T]) -> _T:
        value = self.get(key, expected_type)
        if value is None:
            raise ModelFileError(f"{self._source} has no {key} in its header", "llama.cpp cannot load it")
        return value

    def per_layer(self, key: str, n_layers: int) -> tuple[int, ...] | None:
        """Return a value per layer; the file gives one for all layers, or one each."""
        value = self._metadata.get(key)
        if isinstance(value, array):
            if value.typecode in "fd":
                raise self._wrong(key, "is not of whole numbers")
            if len(value) < n_layers:
                raise self._wrong(key, f"has {len(value)} entries for {n_layers} layers")
            numbers = tuple(value[:n_layers])
            if min(numbers) < 0:
                raise self._wrong(key, f"is {min(numbers)}")
            return numbers
        number = self.get(key, int)
        return None if number is None else (number,) * n_layers

    def strings(self, key: str) -> StringArray | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, StringArray):
            raise self._wrong(key, "is not an array of strings")
        return value

    def _wrong(self, key: str, problem: str) -> ModelFileError:
        return ModelFileError(f"{self._source} is damaged: {key} {problem}", _AGAIN)


def _quant(keys: _Keys, tensors: tuple[Tensor, ...]) -> str | None:
    number = keys.get("general.file_type", int)
    name = None if number is None else FILE_TYPES.get(number)
    return name if name is not None or not tensors else _sizes_by_type(tensors).most_common(1)[0][0]


def _sizes_by_type(tensors: tuple[Tensor, ...]) -> Counter[str]:
    """Return the bytes of all tensors of each type."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type.name] += tensor.size_bytes
    return sizes


def _vocabulary(keys: _Keys) -> Vocabulary:
    return Vocabulary(
        model=keys.get("tokenizer.ggml.model", str),
        pre=keys.get("tokenizer.ggml.pre", str),
        tokens=keys.strings("tokenizer.ggml.tokens"),
        bos_id=keys.get("tokenizer.ggml.bos_token_id", int),
        eos_id=keys.get("tokenizer.ggml.eos_token_id", int),
        add_bos=keys.get("tokenizer.ggml.add_bos_token", bool),
        add_eos=keys.get("tokenizer.ggml.add_eos_token", bool),
    )
