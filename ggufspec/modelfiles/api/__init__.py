"""Fetch, check and suggest models as single calls, for notebooks and commands; the steps of a conversion."""

from __future__ import annotations

from ggufspec.modelfiles.api.checking import (
    CheckedPair,
    CheckRules,
    check,
    check_models,
    check_survey,
    find_rules,
)
from ggufspec.modelfiles.api.converting import (
    HeadModels,
    check_name,
    check_space,
    convert,
    convert_head,
    find_models,
    find_source,
    most_bytes,
    name_output,
)
from ggufspec.modelfiles.api.fetching import fetch, find_references
from ggufspec.modelfiles.api.suggesting import (
    SuggestedDrafter,
    check_candidate,
    find_candidates,
    find_target,
    rank_drafters,
    suggest,
    suggest_layers,
)

__all__ = [
    "CheckRules",
    "CheckedPair",
    "HeadModels",
    "SuggestedDrafter",
    "check",
    "check_candidate",
    "check_models",
    "check_name",
    "check_space",
    "check_survey",
    "convert",
    "convert_head",
    "fetch",
    "find_candidates",
    "find_models",
    "find_references",
    "find_rules",
    "find_source",
    "find_target",
    "most_bytes",
    "name_output",
    "rank_drafters",
    "suggest",
    "suggest_layers",
]
