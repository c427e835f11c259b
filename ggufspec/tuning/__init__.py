"""Which drafter, draft size and offload are fastest here? Forecast everything, measure the best few."""

from __future__ import annotations

from ggufspec.tuning.looking import look, outlook
from ggufspec.tuning.recommending import configuration_of
from ggufspec.tuning.running import (
    Bench,
    TuneRequest,
    confirmation,
    default,
    finals,
    follow_edge,
    identify,
    keep,
    measure_finalists,
    prepare_tuning,
    tune,
)
from ggufspec.tuning.serving import choose_serving, serve
from ggufspec.tuning.values import Choice, Plan, Prospect, Selection, Spent, Stage, Tuned, TuningForecast
from ggufspec.tuning.verdicts import THRESHOLD, judge_finalists, select_arms, why_unusable

__all__ = [
    "THRESHOLD",
    "Bench",
    "Choice",
    "Plan",
    "Prospect",
    "Selection",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "TuningForecast",
    "choose_serving",
    "configuration_of",
    "confirmation",
    "default",
    "finals",
    "follow_edge",
    "identify",
    "judge_finalists",
    "keep",
    "look",
    "measure_finalists",
    "outlook",
    "prepare_tuning",
    "select_arms",
    "serve",
    "tune",
    "why_unusable",
]
