"""llama.cpp's own converter from Hugging Face's format to GGUF, in a Python environment of its own."""

from __future__ import annotations

from ggufspec.llama.convert.converter import (
    DISK_BYTES,
    DOWNLOAD_BYTES,
    Converter,
    ConverterRequest,
    check_wheel,
    find_converter,
    log_path,
    provide_converter,
)
