"""Which drafter, draft size and offload are fastest here? Forecast everything, measure the best few."""

from __future__ import annotations

from ggufspec.tuning.looking import look, outlook
from ggufspec.tuning.running import TuneRequest, default, finals, identify, keep, prepare_tuning, tune
from ggufspec.tuning.values import Choice, Plan, Prospect, Spent, Stage, Tuned, TuningForecast
from ggufspec.tuning.verdicts import THRESHOLD, judge_finalists

__all__ = [
    "THRESHOLD",
    "Choice",
    "Plan",
    "Prospect",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "TuningForecast",
    "default",
    "finals",
    "identify",
    "judge_finalists",
    "keep",
    "look",
    "outlook",
    "prepare_tuning",
    "tune",
]
