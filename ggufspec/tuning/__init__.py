"""Which drafter, draft size and offload are fastest here? Forecast everything, measure the best few."""

from __future__ import annotations

from ggufspec.tuning.looking import look, outlook
from ggufspec.tuning.running import (
    TuneRequest,
    confirmation,
    default,
    finals,
    follow_edge,
    identify,
    keep,
    prepare_tuning,
    tune,
)
from ggufspec.tuning.values import Choice, Plan, Prospect, Selection, Spent, Stage, Tuned, TuningForecast
from ggufspec.tuning.verdicts import THRESHOLD, judge_finalists, select_arms

__all__ = [
    "THRESHOLD",
    "Choice",
    "Plan",
    "Prospect",
    "Selection",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "TuningForecast",
    "confirmation",
    "default",
    "finals",
    "follow_edge",
    "identify",
    "judge_finalists",
    "keep",
    "look",
    "outlook",
    "prepare_tuning",
    "select_arms",
    "tune",
]
