"""Pure numbers, numpy only: estimates with 95 % intervals, comparison, outliers, planning, drift.

What each means in plain words, and how it was validated, stands in ``docs/statistics.md``.
"""

from __future__ import annotations

from ggufspec.stats.cells import Cell, Rates
from ggufspec.stats.comparison import Procedure, Significance, SpeedVerdict, significance
from ggufspec.stats.limits import LimitTest, LogEffect, compare_units, judge_limits, pair_units
from ggufspec.stats.estimates import Estimate, mean_rate, per_prompt, speedup
from ggufspec.stats.intervals import Z95
from ggufspec.stats.planning import Needed, needed
from ggufspec.stats.spread import UNSTABLE_ABOVE, outliers, outlying_cells, spread, unstable
from ggufspec.stats.student import t_quantile, t_tail
from ggufspec.stats.trend import drift

__all__ = [
    "UNSTABLE_ABOVE",
    "Z95",
    "Cell",
    "Estimate",
    "LimitTest",
    "LogEffect",
    "Needed",
    "Procedure",
    "Rates",
    "Significance",
    "SpeedVerdict",
    "compare_units",
    "drift",
    "judge_limits",
    "mean_rate",
    "needed",
    "outliers",
    "outlying_cells",
    "pair_units",
    "per_prompt",
    "significance",
    "speedup",
    "spread",
    "t_quantile",
    "t_tail",
    "unstable",
]
