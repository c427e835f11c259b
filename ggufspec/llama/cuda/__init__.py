"""NVIDIA's driver, and CUDA toolkits made of wheels from the package index."""

from __future__ import annotations

from ggufspec.llama.cuda.driver import Release, format_release

__all__ = [
    "Release",
    "format_release",
]
