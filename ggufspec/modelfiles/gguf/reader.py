"""Read the header of a GGUF file that is not trusted: every count is checked before it is used.

The format is described in ggml's docs/gguf.md. This reader refuses what llama.cpp's own reader refuses
(ggml/src/gguf.cpp), and headers several times as large as any model needs: each key, tensor and token takes
time to read, and a file can be made for that purpose. Texts in arrays are kept as raw bytes: a vocabulary of
128,000 tokens is decoded only where one looks.

The GGUFReader of the package ``gguf`` is not used: it needs the complete file on this machine, where a header
is to be read from the Hub by ranges, and it believes the counts in the file. A header's bytes come from a
`HeaderSource`: a file here, or one on the Hub.
"""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from ggufspec import paths
from ggufspec.errors import ModelFileError
from ggufspec.units import format_bytes

_TYPES = """
0 F32 1 4, 1 F16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34, 9 Q8_1 32 36,
10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210, 15 Q8_K 256 292,
16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50, 20 IQ4_NL 32 18,
21 IQ3_S 256 110, 22 IQ2_S 256 82, 23 IQ4_XS 256 136, 24 I8 1 1, 25 I16 1 2, 26 I32 1 4, 27 I64 1 8,
28 F64 1 8, 29 IQ1_M 256 56, 30 BF16 1 2, 34 TQ1_0 256 54, 35 TQ2_0 256 66, 39 MXFP4 32 17,
40 NVFP4 64 36, 41 Q1_0 128 18, 42 Q2_0 64 18
"""
"""Number in the file, name, elements of a block, its bytes (``ggml.h``, ``type_traits`` in ``ggml.c``)."""

_IK_TYPES = """
133 Q6_0 32 26, 134 IQ1_BN 64 13 2, 135 IQ2_BN 64 16 4, 137 IQ2_K 256 76, 138 IQ3_K 256 110,
139 IQ4_K 256 144, 140 IQ5_K 256 176, 141 IQ6_K 256 212, 144 IQ4_KS 256 136 4, 145 IQ2_KS 256 70 2,
146 IQ4_KSS 256 128 4, 151 Q8_KV 32 32 8, 152 IQ5_KS 256 168 4, 153 IQ2_KT 256 68 4,
154 IQ3_KT 256 100 4, 155 IQ4_KT 256 128 4, 156 IQ3_KS 256 102 2, 157 IQ2_KL 256 86 2,
158 IQ1_KT 256 56 4, 202 Q4_0_R8 32 18, 206 Q5_0_R4 32 22, 208 Q8_0_R8 32 34, 210 Q2_K_R4 256 84,
211 Q3_K_R4 256 110, 212 Q4_K_R4 256 144, 213 Q5_K_R4 256 176, 214 Q6_K_R4 256 210,
216 IQ2_XXS_R4 256 66, 217 IQ2_XS_R4 256 74, 218 IQ3_XXS_R4 256 98, 219 IQ1_S_R4 32 6 2,
220 IQ4_NL_R4 32 18, 221 IQ3_S_R4 256 110, 222 IQ2_S_R4 256 82, 223 IQ4_XS_R8 256 136,
229 IQ1_M_R4 32 7 2, 230 BF16_R16 1 2, 233 Q6_0_R4 32 26, 335 IQ2_BN_R4 64 16 4, 337 IQ2_K_R4 256 76,
338 IQ3_K_R4 256 110, 339 IQ4_K_R4 256 144, 340 IQ5_K_R4 256 176, 344 IQ4_KS_R4 256 136 4,
352 IQ5_KS_R4 256 168 4, 353 MXFP4_R8 32 17, 398 Q8_KV_R8 32 32 4, 399 Q8_K_R8 256 258
"""
"""The same of ik_llama.cpp alone; behind it the bytes at the head of each row (``row_meta_size``), if any."""

_FILE_TYPES = """
0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 7 Q8_0, 8 Q5_0, 9 Q5_1, 10 Q2_K, 11 Q3_K_S, 12 Q3_K_M, 13 Q3_K_L,
14 Q4_K_S, 15 Q4_K_M, 16 Q5_K_S, 17 Q5_K_M, 18 Q6_K, 19 IQ2_XXS, 20 IQ2_XS, 21 Q2_K_S, 22 IQ3_XS,
23 IQ3_XXS, 24 IQ1_S, 25 IQ4_NL, 26 IQ3_S, 27 IQ3_M, 28 IQ2_S, 29 IQ2_M, 30 IQ4_XS, 31 IQ1_M, 32 BF16,
36 TQ1_0, 37 TQ2_0, 38 MXFP4_MOE, 39 NVFP4, 40 Q1_0, 41 Q2_0, 1024 GUESSED,
135 Q6_0, 136 IQ1_BN, 137 IQ2_BN, 138 IQ2_K, 139 IQ3_K, 140 IQ4_K, 141 IQ5_K, 142 IQ6_K, 145 IQ4_KS,
146 IQ3_KL, 147 IQ2_KS, 148 IQ4_KSS, 149 Q8_KV, 150 IQ5_KS, 151 IQ2_KT, 152 IQ3_KT, 153 IQ4_KT,
154 IQ3_KS, 155 IQ2_KL, 156 IQ1_KT, 202 Q4_0_R8, 207 Q8_0_R8, 208 Q5_0_R4, 210 Q2_K_R4, 211 Q3_K_R4,
214 Q4_K_R4, 216 Q5_K_R4, 218 Q6_K_R4, 219 IQ2_XXS_R4, 220 IQ2_XS_R4, 223 IQ3_XXS_R4, 224 IQ1_S_R4,
225 IQ4_NL_R4, 226 IQ3_S_R4, 229 IQ2_M_R4, 230 IQ4_XS_R8, 231 IQ1_M_R4, 232 BF16_R16, 335 Q6_0_R4,
337 IQ2_BN_R4, 338 IQ2_K_R4, 339 IQ3_K_R4, 340 IQ4_K_R4, 341 IQ5_K_R4, 345 IQ4_KS_R4, 350 IQ5_KS_R4,
351 MXFP4_R8, 398 Q8_KV_R8, 399 Q8_K_R8
"""
"""Number under ``general.file_type``, and what people call it (``llama_ftype`` in ``llama.h`` of both)."""


@dataclass(frozen=True)
class GgmlType:
    """A tensor type: ``block_size`` elements are stored in ``block_bytes`` bytes."""

    name: str
    block_size: int
    block_bytes: int
    row_head_bytes: int = 0

    def row_bytes(self, n_elements: int) -> int:
        """Return the bytes of a row of elements, which must fill whole blocks."""
        return self.row_head_bytes + n_elements // self.block_size * self.block_bytes


def _read(table: str) -> dict[int, GgmlType]:
    rows = (row.split() for row in table.split(","))
    return {int(number): GgmlType(name, *map(int, sizes)) for number, name, *sizes in rows}


GGML_TYPES = _read(_TYPES) | _read(_IK_TYPES)
"""Number in the file -> type."""

TYPES_BY_NAME = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}

IK_TYPES = frozenset(ggml_type.name for ggml_type in _read(_IK_TYPES).values())
"""Names of the types that ik_llama.cpp alone reads."""

FILE_TYPES = {int(number): name for number, name in map(str.split, _FILE_TYPES.split(","))}
"""Number -> name of a quantization, such as ``Q3_K_S``."""


_LENGTH = struct.Struct("<Q")
MAGIC = b"GGUF"
_FIRST_READ = 1 << 20  # most headers without a large vocabulary fit
_NEXT_READ = 4 << 20
_LIMIT = 64 << 20  # bytes of a header; the largest vocabularies, with their merges, take 16 MiB
_MAX_KEYS = 4096  # models have 20 to 100
_MAX_KEY = 65535  # bytes, docs/gguf.md
_MAX_STRING = 40 << 20  # bytes; tokenizer.huggingface.json of a vocabulary of 262,144 tokens takes 33 MB
_MAX_ITEMS = 1 << 21  # of an array, and of all arrays of strings together; Gemma's have 0.8 million
_MAX_TENSORS = 512 * 32  # llama.cpp reads up to 512 layers; a layer has 9 to 30 tensors
_MAX_DIMS = 4
_MAX_NAME = 64  # llama.cpp's GGML_MAX_NAME, with the closing zero
_MAX_BYTES = 1 << 63
_SHOWN = 24  # characters of a name in a message
_STRING, _ARRAY = 8, 9
_CODES = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TENSORS = tuple(struct.Struct(f"<{n_dims}QIQ") for n_dims in range(_MAX_DIMS + 1))  # shape, type, offset
_DAMAGED = "the file is damaged or truncated; download it again"


class StringArray:
    """Strings in the file's own encoding: each is eight bytes of length, then its bytes."""

    def __init__(self, buffer: bytearray, starts: array[int], end: int) -> None:
        self._buffer = buffer
        self._starts = starts
        self._end = end

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> bytes:
        start = self._starts[index]
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        return bytes(self._buffer[start + 8 : start + 8 + length])

    def encoded(self, first: int, last: int) -> bytes:
        """Return the strings ``first`` to ``last - 1`` as they stand in the file.

        Two arrays hold the same strings there exactly if these bytes are the same.
        """
        if first >= last:
            return b""
        end = self._starts[last] if last < len(self._starts) else self._end
        return bytes(self._buffer[self._starts[first] : end])


Value: TypeAlias = "str | int | float | bool | StringArray | array[Any]"
"""Of a key. Truth values in an array are 0 and 1."""


class HeaderSource(Protocol):
    """Random access to the bytes of one GGUF."""

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""


class FileSource:
    """A file on this machine.

    Raises:
        ModelFileError: there is no such file, it is a folder, or it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        check_path(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            close = paths.beside(path)
            hint = f"did you mean {close}?" if close else "check the path of the model"
            raise ModelFileError(f"there is no file {path}", hint) from None
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"{path} is a folder", "name the .gguf file within it")
        self._size = status.st_size

    @property
    def size(self) -> int:
        """The file's size when it was opened."""
        return self._size

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                return file.read(n)
        except OSError as error:
            raise ModelFileError(f"{self._path} cannot be read: {error.strerror}") from error


def check_path(path: Path) -> None:
    """Refuse a path that no result could name: the name of a file is bytes, and JSON knows only Unicode.

    Raises:
        ModelFileError: the path is not UTF-8.
    """
    if not paths.is_unicode(path):
        raise ModelFileError(
            f"the path {paths.shown(path)} is not valid UTF-8",
            "rename the file or the folder, or use a symbolic link",
        )


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor: ``shape`` in ggml's order (row length first), ``offset`` from the file's start."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType
    offset: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a GGUF says about itself, and where its last tensor ends."""

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    end: int


def read_header(source: HeaderSource, name: str) -> Header:
    """Read a header, fetching no more of the file than that takes (in steps of 4 MiB).

    Args:
        source: the file's bytes.
        name: what to call the file in messages.

    Raises:
        ModelFileError: this is not a GGUF that llama.cpp reads, or the file ends within its header.
    """
    return _HeaderReader(source, name).header()


class _HeaderReader:
    def __init__(self, source: HeaderSource, name: str) -> None:
        self._source = source
        self._name = name
        self._buffer = bytearray()
        self._position = 0
        self._n_strings = 0  # in arrays

    def header(self) -> Header:
        self._advance(4)
        version = self._version()
        n_tensors, n_pairs = self._number("Q"), self._number("Q")
        self._limit(n_pairs, _MAX_KEYS, "keys")
        self._limit(n_tensors, _MAX_TENSORS, "tensors")
        self._expect(n_pairs * 13)  # a key's length, a type and one byte are the least
        metadata: dict[str, Value] = {}
        for _ in range(n_pairs):
            key = self._string(_MAX_KEY)
            if not key or key in metadata:
                raise self._damaged(f"the key {key[:_SHOWN]!r} is empty or comes twice")
            metadata[key] = self._value(key, self._number("I"))
        self._expect(n_tensors * 24)
        infos: dict[str, tuple[tuple[int, ...], GgmlType, int]] = {}
        for _ in range(n_tensors):
            name, info = self._tensor()
            if name in infos:
                raise self._damaged(f"the tensor {name!r} comes twice")
            infos[name] = info
        return self._placed(version, metadata, infos)

    def _version(self) -> int:
        version: int = self._number("I")
        if version & 0xFFFF == 0 and version:
            raise ModelFileError(f"{self._name} is in big-endian byte order")
        if version not in (2, 3):
            raise ModelFileError(
                f"{self._name} is of GGUF version {version}, not 2 or 3",
                "convert the model again with today's converter",
            )
        return version

    def _placed(
        self,
        version: int,
        metadata: dict[str, Value],
        infos: dict[str, tuple[tuple[int, ...], GgmlType, int]],
    ) -> Header:
        """Give every tensor its place: one after the other, each at a multiple of the alignment."""
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
            raise self._damaged("its alignment is not a power of two")
        base = -(-self._position // alignment) * alignment
        tensors, expected, end = [], 0, self._position
        for name, (shape, ggml_type, offset) in infos.items():
            if offset != expected:
                raise self._damaged(f"the tensor {name!r} is at {offset} instead of {expected}")
            size = ggml_type.row_bytes(shape[0]) if shape else ggml_type.block_bytes
            for dimension in shape[1:]:
                size *= dimension
            if size > _MAX_BYTES:
                raise self._damaged(f"the tensor {name!r} has the impossible shape {shape}")
            tensors.append(
                Tensor(name=name, shape=shape, type=ggml_type, offset=base + offset, size_bytes=size)
            )
            end = base + offset + size
            expected = -(-(offset + size) // alignment) * alignment
        return Header(version=version, metadata=MappingProxyType(metadata), tensors=tuple(tensors), end=end)

    def _tensor(self) -> tuple[str, tuple[tuple[int, ...], GgmlType, int]]:
        name = self._string(_MAX_KEY)
        if len(name.encode()) >= _MAX_NAME:
            raise self._damaged(f"the tensor name {name[:_SHOWN]!r}… is longer than llama.cpp allows")
        n_dims = self._number("I")
        if n_dims > _MAX_DIMS:
            raise self._damaged(f"the tensor {name!r} has {n_dims} dimensions")
        layout = _TENSORS[n_dims]
        *sizes, number, offset = layout.unpack_from(self._buffer, self._advance(layout.size))
        shape, ggml_type = tuple(sizes), GGML_TYPES.get(number)
        if ggml_type is None:
            raise ModelFileError(
                f"{self._name}: the tensor {name!r} is of type {number}, "
                "which is unknown or no longer supported",
                "quantize the model again, or get a newer file",
            )
        if (shape[0] if shape else 1) % ggml_type.block_size or any(size >= _MAX_BYTES for size in shape):
            raise self._damaged(f"the tensor {name!r} has the impossible shape {shape} for {ggml_type.name}")
        return name, (shape, ggml_type, offset)

    def _value(self, key: str, code: int) -> Value:
        if code in _CODES:
            value: Value = self._number(_CODES[code])
            return value
        if code == _STRING:
            return self._string(_MAX_STRING)
        if code != _ARRAY:
            raise self._damaged(f"the key {key[:_SHOWN]!r} is of unknown type {code}")
        code, count = self._number("I"), self._number("Q")
        self._limit(count, _MAX_ITEMS, f"values of {key[:_SHOWN]!r}")
        if code == _STRING:
            return self._strings(count)
        if code not in _CODES:  # arrays of arrays are in the specification, but llama.cpp reads none
            raise self._damaged(f"the key {key[:_SHOWN]!r} is an array of unknown type {code}")
        numbers: array[Any] = array(_CODES[code].replace("?", "B"))
        size = count * numbers.itemsize
        start = self._advance(size)
        numbers.frombytes(self._buffer[start : start + size])
        return numbers

    def _strings(self, count: int) -> StringArray:
        self._expect(count * 8)
        self._n_strings += count
        self._limit(self._n_strings, _MAX_ITEMS, "texts")
        starts = array("Q")
        buffer, position, unpack = self._buffer, self._position, struct.Struct("<Q").unpack_from
        filled = len(buffer)
        for _ in range(count):
            if position + 8 > filled:
                self._fill(position + 8)
                filled = len(buffer)
            starts.append(position)
            position += 8 + unpack(buffer, position)[0]
        self._fill(position)
        self._position = position
        return StringArray(buffer, starts, position)

    def _string(self, most: int) -> str:
        length = self._number("Q")
        self._expect(length)
        self._limit(length, most, "bytes in one text")
        start = self._advance(length)
        return self._buffer[start : start + length].decode(errors="replace")

    def _number(self, code: str) -> int:
        layout = "<" + code
        value: int
        (value,) = struct.unpack_from(layout, self._buffer, self._advance(struct.calcsize(layout)))
        return value

    def _advance(self, size: int) -> int:
        """Step over ``size`` bytes, which are in the buffer afterwards; return where they begin."""
        start = self._position
        self._fill(start + size)
        self._position = start + size
        return start

    def _limit(self, count: int, most: int, noun: str) -> None:
        if count > most:
            raise ModelFileError(
                f"{self._name} has {count:,} {noun} in its header; models have at most {most:,}", _DAMAGED
            )

    def _expect(self, size: int) -> None:
        """Refuse a count whose items cannot fit into the rest of the file."""
        self._check(self._position + size)

    def _check(self, end: int) -> None:
        if end > self._source.size:
            raise ModelFileError(
                f"{self._name} ends within its header, after {self._source.size} bytes", _DAMAGED
            )
        if end > _LIMIT:
            raise self._damaged(f"its header would be larger than {format_bytes(_LIMIT)}")

    def _fill(self, end: int) -> None:
        filled = len(self._buffer)
        if end <= filled:
            return
        self._check(end)
        step = _NEXT_READ if filled else _FIRST_READ
        size = min(max(end - filled, step), self._source.size - filled, _LIMIT - filled)
        self._buffer += self._source.read(filled, size)
        if len(self._buffer) < end:
            raise ModelFileError(f"{self._name} became shorter while it was read", _DAMAGED)

    def _damaged(self, problem: str) -> ModelFileError:
        return ModelFileError(f"{self._name} is damaged: {problem}", _DAMAGED)
