"""Can this drafter draft for this target? llama.cpp's own rules, from two headers alone."""

from __future__ import annotations

from ggufspec.modelfiles.compat.heads import (
    Head,
    mtp_bytes,
    mtp_layers,
    read_head,
    usable_methods,
    why_not_split_by_tensor,
)
from ggufspec.modelfiles.compat.judging import CompatVerdict
from ggufspec.modelfiles.compat.vocabularies import effective
