"""Fetch, check and suggest models as single calls, for notebooks; the command line makes the same steps."""

from __future__ import annotations

from ggufspec.modelfiles.api.checking import CheckedPair, check, check_models, check_survey, find_rule
from ggufspec.modelfiles.api.fetching import fetch, find_references
from ggufspec.modelfiles.api.suggesting import (
    SuggestedDrafter,
    check_candidate,
    find_candidates,
    find_target,
    rank_drafters,
    suggest,
)

__all__ = [
    "CheckedPair",
    "SuggestedDrafter",
    "check",
    "check_candidate",
    "check_models",
    "check_survey",
    "fetch",
    "find_candidates",
    "find_references",
    "find_rule",
    "find_target",
    "rank_drafters",
    "suggest",
]
