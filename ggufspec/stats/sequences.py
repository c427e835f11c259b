"""A confidence sequence: intervals that hold together at every planned look at a growing bench.

The looks are fixed beforehand, and come after complete repeats only. At each one, the mean of the repeats'
differences is tested by Student's t. The error of 5 % is divided equally among the looks and the comparisons
(Bonferroni), so that stopping at any look keeps it. Prompts are fixed: the question is how the arms compare
on these prompts, and repeats are what would be drawn anew. ``scripts/validate_stopping.py`` simulates it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ggufspec.domain import StoppingRule
from ggufspec.stats.cells import Cell
from ggufspec.stats.effects import Effect
from ggufspec.stats.fixed import fixed_effect

ERROR = 0.05
"""The chance that any interval, at any look, misses the true value."""


def sequential_effect(
    rates: Mapping[Cell, float],
    baseline: Mapping[Cell, float],
    rule: StoppingRule,
) -> Effect | None:
    """Compare two arms, paired by prompt and repeat, at a look.

    Interval and p hold for all looks and comparisons of the rule together. ``p_value`` is
    multiplied by their number, so that the interval excludes 1 exactly where it is below 0.05.

    Args:
        rates: positive tokens/s of each (prompt, repeat), of the repeats up to the look.
        baseline: the same of the other arm. Cells that one side lacks are left out.
        rule: the looks and comparisons that share the error.

    Returns:
        The comparison, or None when no cell was measured on both sides.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    return fixed_effect(rates, baseline, tests=rule.tests)
