"""Rules for the draft size, replayed over stored rounds before any build has them."""

from __future__ import annotations

from ggufspec.forecast.policies.comparing import (
    PolicyComparison,
    PolicyGain,
    compare_cells,
    compare_rules,
    policy,
)
from ggufspec.forecast.policies.rules import (
    RULES,
    Rule,
    best_sizes,
    fixed,
    from_rounds,
    read_rules,
    replay,
    replay_p_min,
)
from ggufspec.forecast.policies.schedules import DraftSchedule, ScheduleComparison, compare_schedule
