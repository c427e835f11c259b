"""Arrays of a header, kept as raw bytes: a vocabulary of 128,000 tokens is decoded only where one looks."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import overload

from gguf.constants import GGML_QUANT_SIZES, LlamaFileType

_LENGTH = struct.Struct("<Q")


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


class NumberArray:
    """Numbers or truth values of one type."""

    def __init__(self, buffer: bytearray, start: int, count: int, code: str) -> None:
        self._buffer = buffer
        self._start = start
        self._count = count
        self.code = code

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int | float | bool: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int | float | bool, ...]: ...
    def __getitem__(self, index: int | slice) -> int | float | bool | tuple[int | float | bool, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        if not 0 <= index < self._count:
            raise IndexError(index)
        width = struct.calcsize("<" + self.code)
        value: int | float | bool
        (value,) = struct.unpack_from("<" + self.code, self._buffer, self._start + index * width)
        return value

    def __iter__(self) -> Iterator[int | float | bool]:
        return iter(self[:])


Value = str | int | float | bool | StringArray | NumberArray


@dataclass(frozen=True)
class GgmlType:
    """A tensor type: ``block_size`` elements are stored in ``block_bytes`` bytes."""

    name: str
    block_size: int
    block_bytes: int

    def row_bytes(self, n_elements: int) -> int:
        """Return the bytes of a row of elements, which must fill whole blocks."""
        return n_elements // self.block_size * self.block_bytes


GGML_TYPES: dict[int, GgmlType] = {
    42: GgmlType("Q2_0", 64, 18),  # 2026; the gguf package learned it later than llama.cpp
    **{int(ggml_type): GgmlType(ggml_type.name, *sizes) for ggml_type, sizes in GGML_QUANT_SIZES.items()},
}
"""Number in the file -> type, for every type that llama.cpp reads today."""

TYPES_BY_NAME = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}


def file_type_name(number: int) -> str | None:
    """Return what people call a file type, such as ``Q3_K_S``; None for a number that is not known."""
    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return None
