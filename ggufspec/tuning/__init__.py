"""Find the fastest drafter, draft size and offload, and up to how many users drafting pays."""

from __future__ import annotations

from ggufspec.tuning.automatic import DraftSource, DraftSources, auto, find_attempt, find_sources
from ggufspec.tuning.crossing import (
    CrossoverPlan,
    begin_crossover,
    coarse_points,
    crossover,
    expect_cells,
    measure_crossover,
    prepare_crossover,
)
from ggufspec.tuning.launching import (
    ServerCommand,
    ServerOption,
    choose_serving,
    prepare_server,
    serve,
    serving_command,
)
from ggufspec.tuning.looking import forecast_configurations, outlook
from ggufspec.tuning.planning import identify, prepare_tuning
from ggufspec.tuning.running import (
    confirmation,
    finals,
    forecast_tuning,
    keep,
    measure_finalists,
    tune,
)
from ggufspec.tuning.values import NextBench, Plan, Prospect, Spent, Stage, Tuned, TuningForecast
from ggufspec.tuning.verdicts import configuration_of, judge_finalists, select_arms, why_unusable
