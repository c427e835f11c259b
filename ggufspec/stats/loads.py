"""What repeats with other loads would show: comparisons of two arms on given prompts, and percentiles.

In a comparison, each load (or repeat, where each run has a process of its own) is one value, the mean of the
log ratios over the prompts; Student's t gives the interval of their mean. Where prompts differ in their
ratio, it is narrower than that of ``paired_effect``, which is for other prompts of their kind as well.

With several tests, it is a confidence sequence: intervals of several arms that hold together at every planned
look at a growing bench. The looks are fixed beforehand and come after complete repeats only. The error is
divided equally among looks and arms (Bonferroni), so that stopping at any look keeps it.
``scripts/validate_stopping.py`` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Cell, Values, align
from ggufspec.stats.disturbance import disturbance_error
from ggufspec.stats.effects import (
    MIN_LOADS,
    Effect,
    Gap,
    cell_means,
    group_repeats,
    is_constant,
    paired_effect,
)
from ggufspec.stats.estimates import quantile
from ggufspec.stats.limits import LogEffect, pair_units

LEAST_BEYOND = 10
"""Values that must lie beyond a percentile on each side; with fewer, single requests decide it."""

FEW_BEYOND = 60
"""Values beyond a percentile below which a note says that few of them decide it: 3 loads have 20 each."""

_LEAST_SHARE = 0.5  # of the prompts, in a load that counts


def fixed_effect(
    rates: Mapping[Cell, float], baseline: Mapping[Cell, float], *, tests: int = 1
) -> Effect | None:
    """Compare two arms on these prompts, paired by prompt and repeat.

    Args:
        rates: positive tokens/s of each (prompt, repeat).
        baseline: the same of the other arm. Cells that one side lacks are left out.
        tests: how many intervals are to hold together (Bonferroni); ``p_value`` is multiplied by it, so that
            the interval excludes 1 exactly where it is below 0.05.

    Returns:
        The comparison, or None when no cell was measured on both sides.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    effect = paired_effect(rates, baseline)
    if effect is None or effect.gap is Gap.NOT_INTERLEAVED:
        return effect
    units = compare_loads(rates, baseline)
    if units is None:
        return effect.without_interval(Gap.SINGLE)
    if is_constant(units.error, units.value):
        return effect.without_interval(Gap.EQUAL)
    error, degrees = units.total
    return replace(effect, mean=units.value, error=error, degrees=degrees, gap=None, tests=tests)


def compare_loads(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> LogEffect | None:
    """Return the mean log ratio over the loads (or repeats) of these prompts; None with fewer than two."""
    first, second = align(rates, baseline)
    groups, _ = group_repeats(first, second)
    logs = np.log(first.table) - np.log(second.table)
    means, _ = cell_means(logs, range(len(logs)), groups)
    units = pair_units(mean_of_loads(means))
    return None if units is None else replace(units, disturbance=disturbance_error(first, second))


def mean_of_loads(logs: Values) -> list[float]:
    """Return the mean over prompts of each load that has at least half of them.

    Each prompt is seen from its own mean over the loads, so that a missing prompt does not look like a
    difference between loads.

    Args:
        logs: log ratios, shape (prompts, loads); NaN where a cell is missing.
    """
    kept = logs[~np.isnan(logs).all(axis=1)]
    present = ~np.isnan(kept)
    values = np.where(present, kept, 0.0)
    means = values.sum(axis=1) / present.sum(axis=1)
    apart = np.where(present, kept - means[:, None], 0.0).sum(axis=0)
    counts = present.sum(axis=0)
    counted = counts >= _LEAST_SHARE * len(kept)
    return [float(value) for value in means.mean() + apart[counted] / counts[counted]]


def percentile_over_loads(values: Sequence[ArrayLike], percent: float) -> Estimate | None:
    """Return a percentile of all values together, with its 95 % interval over loads.

    Requests of one load share its memory layout and its neighbours in time, so loads are the units: the
    standard error of the logarithm follows from the percentiles of each load around that of all (sectioning:
    Asmussen and Glynn 2007, "Stochastic Simulation", section III.5), with Student's t for loads - 1 degrees
    of freedom. Leaving out one load after the other, a jackknife, holds in 92 % with 60 values beyond.

    Args:
        values: seconds of each load's requests, 0 or more; loads without any are left out.
        percent: from 0 to 100, ends excluded.

    Returns:
        The estimate; without an interval for fewer than three loads, where all loads agree exactly, or where
        the percentile of one of them is 0. None with fewer than ten values beyond the percentile on
        either side.
    """
    loads = [load for load in (np.asarray(of_load, dtype=np.float64) for of_load in values) if load.size]
    pooled = np.concatenate(loads) if loads else np.empty(0)
    if len(pooled) * min(percent, 100 - percent) / 100 < LEAST_BEYOND:
        return None
    value = float(np.percentile(pooled, percent))
    if len(loads) < MIN_LOADS or value <= 0:
        return Estimate.around(value)
    of_loads = np.array([np.percentile(load, percent) for load in loads])
    if of_loads.min() <= 0:  # tokens that arrive together are 0 s apart, and 0 has no logarithm
        return Estimate.around(value)
    error = math.sqrt(float(np.mean(np.log(of_loads / value) ** 2)) / (len(loads) - 1))
    if error <= 1e-12:
        return Estimate.around(value)
    half = quantile(len(loads) - 1) * error
    return Estimate(value=value, lo=value * math.exp(-half), hi=value * math.exp(half))
