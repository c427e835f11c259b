"""NVIDIA's driver, and CUDA toolkits made of wheels from the package index."""

from __future__ import annotations

from ggufspec.llama.cuda.driver import Release, said

__all__ = [
    "Release",
    "said",
]
