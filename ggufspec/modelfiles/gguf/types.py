"""The tensor types of ggml and the quantization names of llama.cpp, from the ``gguf`` package."""

from __future__ import annotations

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES, LlamaFileType


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
    **{int(kind): GgmlType(kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()},
}
"""Number in the file -> type, for every type that llama.cpp reads today."""

TYPES_BY_NAME = {kind.name: kind for kind in GGML_TYPES.values()}


def file_type_name(number: int) -> str | None:
    """Return what people call a file type, such as ``Q3_K_S``; None for a number that is not known."""
    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return None
