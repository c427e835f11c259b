"""Pure numbers: estimates with 95 % intervals, comparison, outliers, planning, drift; no I/O.

``paired_effect`` compares two arms and is the source of every speed-up's estimate, interval and p.
What each figure means in plain words, and how it was validated, stands in ``docs/statistics.md``.
"""

from __future__ import annotations

from ggufspec.domain import Estimate, StoppingRule, schedule_looks
from ggufspec.stats.anchors import drift
from ggufspec.stats.cells import Cell, Rates, align, p_of_equal_groups, residual_square, spread, unstable
from ggufspec.stats.clipping import clip, find_far, replace_rates
from ggufspec.stats.disturbance import (
    combine_slowdowns,
    disturbance_error,
    expected_slowdown,
    mean_slowdown,
    rising_line,
    unequal_slowdown,
    widen,
)
from ggufspec.stats.effects import (
    ASSUMED_SPREAD,
    MIN_LOADS,
    WIDEST,
    Effect,
    Gap,
    assume_spread,
    mean_rate,
    paired_effect,
)
from ggufspec.stats.estimates import (
    ERROR,
    Z95,
    mean_over_prompts,
    median_ratio,
    per_prompt,
    preload,
    quantile,
    ratio_of_sums,
    t_quantile,
    t_tail,
)
from ggufspec.stats.families import (
    SHARED_BASELINE,
    Adjusted,
    Comparison,
    adjust,
    family_quantile,
    family_tail,
    moderate,
)
from ggufspec.stats.loads import (
    FEW_BEYOND,
    LimitTest,
    LogEffect,
    compare_loads,
    compare_units,
    fixed_effect,
    judge_limits,
    mean_of_loads,
    pair_units,
    percentile_over_loads,
)
from ggufspec.stats.planning import Needed, expected_width, needed, needed_for
from ggufspec.stats.sampling import count_places, highest_share, place_token, uniform_p_value
