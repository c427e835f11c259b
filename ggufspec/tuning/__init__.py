"""Forecast every configuration and measure the best few; map for how many users drafting pays."""

from __future__ import annotations

from ggufspec.tuning.crossing import (
    CrossoverPlan,
    CrossoverRequest,
    CrossoverStep,
    begin_crossover,
    coarse_places,
    crossover,
    crossover_request,
    identify_crossover,
    measure_crossover,
    prepare_crossover,
)
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
    "CrossoverPlan",
    "CrossoverRequest",
    "CrossoverStep",
    "Plan",
    "Prospect",
    "Selection",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "TuningForecast",
    "begin_crossover",
    "choose_serving",
    "coarse_places",
    "configuration_of",
    "confirmation",
    "crossover",
    "crossover_request",
    "default",
    "finals",
    "follow_edge",
    "identify",
    "identify_crossover",
    "judge_finalists",
    "keep",
    "look",
    "measure_crossover",
    "measure_finalists",
    "outlook",
    "prepare_crossover",
    "prepare_tuning",
    "select_arms",
    "serve",
    "tune",
    "why_unusable",
]
