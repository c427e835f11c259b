"""Find the fastest drafter, draft size and offload, and up to how many users drafting pays."""

from __future__ import annotations

from ggufspec.tuning.automatic import auto
from ggufspec.tuning.crossing import (
    CrossoverPlan,
    CrossoverRequest,
    CrossoverStep,
    begin_crossover,
    coarse_points,
    crossover,
    crossover_request,
    expect_cells,
    identify_crossover,
    measure_crossover,
    prepare_crossover,
)
from ggufspec.tuning.launching import ServerCommand, ServerOption, prepare_server
from ggufspec.tuning.looking import forecast_configurations, outlook
from ggufspec.tuning.planning import TuneRequest, default, identify, prepare_tuning
from ggufspec.tuning.recommending import configuration_of
from ggufspec.tuning.resuming import Attempt, find_attempt
from ggufspec.tuning.running import (
    Bench,
    confirmation,
    finals,
    follow_edge,
    keep,
    measure_finalists,
    tune,
)
from ggufspec.tuning.serving import choose_serving, serve
from ggufspec.tuning.sources import AutoRequest, DraftSource, DraftSources, find_sources
from ggufspec.tuning.values import Choice, Plan, Prospect, Selection, Spent, Stage, Tuned, TuningForecast
from ggufspec.tuning.verdicts import judge_finalists, select_arms, why_unusable

__all__ = [
    "Attempt",
    "AutoRequest",
    "Bench",
    "Choice",
    "CrossoverPlan",
    "CrossoverRequest",
    "CrossoverStep",
    "DraftSource",
    "DraftSources",
    "Plan",
    "Prospect",
    "Selection",
    "ServerCommand",
    "ServerOption",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "TuningForecast",
    "auto",
    "begin_crossover",
    "choose_serving",
    "coarse_points",
    "configuration_of",
    "confirmation",
    "crossover",
    "crossover_request",
    "default",
    "expect_cells",
    "finals",
    "find_attempt",
    "find_sources",
    "follow_edge",
    "forecast_configurations",
    "identify",
    "identify_crossover",
    "judge_finalists",
    "keep",
    "measure_crossover",
    "measure_finalists",
    "outlook",
    "prepare_crossover",
    "prepare_server",
    "prepare_tuning",
    "select_arms",
    "serve",
    "tune",
    "why_unusable",
]
