"""llama.cpp's own converter from Hugging Face's format to GGUF, in a Python environment of its own."""

from __future__ import annotations

from ggufspec.llama.convert.environment import Converter, ConverterRequest, find_converter, provide_converter

__all__ = [
    "Converter",
    "ConverterRequest",
    "find_converter",
    "provide_converter",
]
