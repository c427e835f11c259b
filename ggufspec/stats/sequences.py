"""A confidence sequence: intervals that hold together at every planned look at a growing bench.

The looks are fixed beforehand, and come after complete repeats only. At each one, the mean of the repeats'
differences is tested by Student's t. The error of 5 % is divided equally among the looks and the comparisons
(Bonferroni), so that stopping at any look keeps it. Prompts are fixed: the question is how the arms compare
on these prompts, and repeats are what would be drawn anew. ``scripts/validate_stopping.py`` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ggufspec.domain import Estimate, StoppingRule
from ggufspec.stats.cells import Cell, Values, align
from ggufspec.stats.disturbance import disturbance_error
from ggufspec.stats.effects import WIDEST, Effect, Gap, is_constant, paired_effect
from ggufspec.stats.limits import pair_units
from ggufspec.stats.student import t_quantile

ERROR = 0.05
"""The chance that any interval, at any look, misses the true value."""

_LEAST_SHARE = 0.5  # of the prompts, in a repeat that counts


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
    effect = paired_effect(rates, baseline)
    if effect is None:
        return None
    first, second = align(rates, baseline)
    units = pair_units(_repeat_means(np.log(first.table) - np.log(second.table)))
    if units is None:
        return without_interval(effect, Gap.SINGLE)
    if is_constant(units.error, units.value):
        return without_interval(effect, Gap.EQUAL)
    units = replace(units, disturbance=disturbance_error(first, second))
    error, degrees = units.total
    half = min(t_quantile(ERROR / rule.tests / 2, degrees) * error, WIDEST)
    ratio = Estimate(
        value=math.exp(units.value), lo=math.exp(units.value - half), hi=math.exp(units.value + half)
    )
    p_value = min(1.0, units.p_value * rule.tests)
    return replace(
        effect,
        ratio=ratio,
        p_value=p_value,
        degrees=degrees,
        gap=None,
        fit=replace(effect.fit, mean=units.value, error=error, degrees=degrees, gap=None),
    )


def without_interval(effect: Effect, gap: Gap) -> Effect:
    """Return a comparison with its estimate alone, and why it has no interval."""
    ratio = Estimate(value=effect.ratio.value, lo=None, hi=None)
    fitted = replace(effect.fit, error=None, degrees=None, gap=gap)
    return replace(effect, ratio=ratio, p_value=None, degrees=None, gap=gap, fit=fitted)


def _repeat_means(logs: Values) -> list[float]:
    """Return the mean over prompts of each repeat that has at least half of them.

    Each prompt is seen from its own mean over the repeats, so that a missing prompt does not look like a
    difference between repeats.

    Args:
        logs: log ratios, shape (prompts, repeats); NaN where a cell is missing.
    """
    kept = logs[~np.isnan(logs).all(axis=1)]
    present = ~np.isnan(kept)
    values = np.where(present, kept, 0.0)
    means = values.sum(axis=1) / present.sum(axis=1)
    apart = np.where(present, kept - means[:, None], 0.0).sum(axis=0)
    counts = present.sum(axis=0)
    counted = counts >= _LEAST_SHARE * len(kept)
    return [float(value) for value in means.mean() + apart[counted] / counts[counted]]
