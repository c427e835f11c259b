"""Command lines of llama.cpp's programs, from one table of how each era spells its flags."""

from __future__ import annotations

from ggufspec.llama.command.drafting import (
    FIRST_BUILDS,
    LEARNING_METHODS,
    LOOKUPS,
    canonical_ngram,
    check_chain,
    check_draft_sampling,
    check_fork,
    check_synthetic,
    draft_sizes,
    drafter_devices,
    longest_draft,
    type_name,
    unused_settings,
)
from ggufspec.llama.command.flags import count_layers
from ggufspec.llama.command.runtime import check_arguments
