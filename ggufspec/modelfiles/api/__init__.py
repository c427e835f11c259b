"""Fetch, check and suggest models as single calls, for notebooks; the command line makes the same steps."""

from __future__ import annotations

from ggufspec.modelfiles.api.checking import CheckedPair, Rules, check, check_models, check_survey, find_rules
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
    "CheckedPair",
    "Rules",
    "SuggestedDrafter",
    "check",
    "check_candidate",
    "check_models",
    "check_survey",
    "fetch",
    "find_candidates",
    "find_references",
    "find_rules",
    "find_target",
    "rank_drafters",
    "suggest",
    "suggest_layers",
]
