"""Which drafter, draft size and offload are fastest here? Forecast everything, measure the best few."""

from __future__ import annotations

from ggufspec.tuning.looking import look, outlook
from ggufspec.tuning.running import TuneRequest, default, finals, identify, keep, prepare, tune
from ggufspec.tuning.values import Choice, Outlook, Plan, Prospect, Spent, Stage, Tuned
from ggufspec.tuning.verdicts import THRESHOLD, judge

__all__ = [
    "THRESHOLD",
    "Choice",
    "Outlook",
    "Plan",
    "Prospect",
    "Spent",
    "Stage",
    "TuneRequest",
    "Tuned",
    "default",
    "finals",
    "identify",
    "judge",
    "keep",
    "look",
    "outlook",
    "prepare",
    "tune",
]
