"""Fetch, check and suggest models as single calls, for notebooks; the command line makes the same steps."""

from __future__ import annotations

from ggufspec.modelfiles.api.checking import check, check_survey, choose_rule, find_rule, read_pair
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
    "SuggestedDrafter",
    "check",
    "check_candidate",
    "check_survey",
    "choose_rule",
    "fetch",
    "find_candidates",
    "find_references",
    "find_rule",
    "find_target",
    "rank_drafters",
    "read_pair",
    "suggest",
]
