"""Pure numbers, numpy and scipy only: estimates with 95 % intervals, comparison, outliers, planning, drift.

What each means in plain words, and how it was validated, stands in ``docs/statistics.md``.
"""

from __future__ import annotations

from ggufspec.stats.cells import Cell, Rates
from ggufspec.stats.comparison import Procedure, Significance, SpeedVerdict, significance
from ggufspec.stats.estimates import Estimate, mean_rate, per_prompt, speedup
from ggufspec.stats.intervals import Z95
from ggufspec.stats.planning import Needed, needed
from ggufspec.stats.spread import UNSTABLE_ABOVE, outliers, outlying_cells, spread, unstable
from ggufspec.stats.texts import (
    BINS,
    LEAST_TOKENS,
    count_places,
    highest_share,
    place_token,
    uniform_p_value,
)
from ggufspec.stats.trend import drift

__all__ = [
    "BINS",
    "LEAST_TOKENS",
    "UNSTABLE_ABOVE",
    "Z95",
    "Cell",
    "Estimate",
    "Needed",
    "Procedure",
    "Rates",
    "Significance",
    "SpeedVerdict",
    "count_places",
    "drift",
    "highest_share",
    "mean_rate",
    "needed",
    "outliers",
    "outlying_cells",
    "per_prompt",
    "place_token",
    "significance",
    "speedup",
    "spread",
    "uniform_p_value",
    "unstable",
]
