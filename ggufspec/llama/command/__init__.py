"""Command lines of llama.cpp's programs, from one table of how each era spells its flags."""

from __future__ import annotations

from ggufspec.llama.command.drafting import LOOKUPS, Lookup, check_method, check_synthetic, draft_sizes
from ggufspec.llama.command.runtime import check_arguments

__all__ = [
    "LOOKUPS",
    "Lookup",
    "check_arguments",
    "check_method",
    "check_synthetic",
    "draft_sizes",
]
