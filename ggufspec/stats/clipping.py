"""Runs far from the others of their kind, and the rates that count in their place.

A log rate of one arm is the sum of an effect of its prompt, an effect of its load (or repeat) and a residual.
A run whose residual is larger than ``FAR`` robust standard deviations tells of a moment, not of the arm: one
run in twenty that is 30 % slower doubles the interval of a speed-up. It is clipped: it counts as the rate
that its prompt and its load predict, as a missing plot does in the table of an experiment (Yates 1933, Empire
Journal of Experimental Agriculture 1:129-142), and ``effects.fit`` takes a degree of freedom less for it.

The rates of an arm are clipped once, before anything is computed from them, so that tables, comparisons,
guards, crossovers and sequences use the same values. ``scripts/validate_intervals`` simulates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, lgamma, sqrt

import numpy as np
from numpy.typing import NDArray

from ggufspec.stats.cells import Rates, Values, pooled_spread
from ggufspec.stats.effects import group_repeats

FAR = 3.5
"""Robust standard deviations beyond which a run is clipped (Iglewicz and Hoaglin 1993)."""

_SWEEPS = 4  # of the median polish (Tukey 1977, "Exploratory Data Analysis", chapter 11); it settles in three
_LEAST_REPEATS = 3  # of a prompt: of two that differ, neither is the odd one
_LEAST_PROMPTS = 3  # of a load: of two that differ, neither is the odd one
_LEAST_DEGREES = 5  # of freedom of the residuals: fewer do not show how much runs scatter
_MOST = 0.2  # of an arm's runs: more are no exceptions, but how the arm behaves
_UNEQUAL = 0.05  # p, over all arms, below which the arms do not have far runs alike
_SLIGHT = 1e-9  # standard deviations below this are rounding
_SOLVED = 1e-9  # of the largest singular value: smaller ones are rounding

_OF_NORMAL = 1.4826  # standard deviations in a median absolute deviation of normal values

Mask = NDArray[np.bool_]


def clip(arms: Sequence[Rates]) -> list[Rates]:
    """Return the rates of arms that are compared, with the runs clipped that are far from their kind.

    Nothing is clipped where one arm has significantly more such runs than the others: then they are how it
    behaves, and its mean includes them.

    Args:
        arms: with the same prompts and repeats.
    """
    far = [find_far(rates) for rates in arms]
    if _is_unequal([int(mask.sum()) for mask in far], [len(rates) for rates in arms]):
        return [*arms]
    return [replace_rates(rates, mask) for rates, mask in zip(arms, far, strict=True)]


def find_far(rates: Rates) -> Mask:
    """Return which runs of an arm are far from what prompt and load predict, in the table's shape.

    None is where too few runs show how much they scatter, or where a fifth of them would be far.
    """
    logs = np.log(rates.table)
    far = np.zeros(logs.shape, dtype=np.bool_)
    rows = np.flatnonzero((~np.isnan(logs)).sum(axis=1) >= _LEAST_REPEATS)
    columns = np.flatnonzero((~np.isnan(logs[rows])).any(axis=0))
    if not len(rows):
        return far
    cells = np.ix_(rows, columns)
    loads = _loads(rates)[columns]
    residuals = _polish(logs[cells], loads)
    present = ~np.isnan(residuals)
    within = int(present.sum()) - len(rows)  # degrees of freedom of the differences between repeats
    degrees = within - (len(np.unique(loads)) - 1 if len(rows) >= _LEAST_PROMPTS else 0)
    if degrees < _LEAST_DEGREES:
        return far
    spread = pooled_spread(residuals) or 0.0
    scale = spread * sqrt(within / degrees)
    if scale <= _SLIGHT:
        return far
    far[cells] = np.abs(np.where(present, residuals, 0.0)) > FAR * np.maximum(
        scale, _spread_of_others(residuals)
    )
    if far.sum() > _MOST * len(rates):
        return np.zeros_like(far)
    far[cells] &= ~_wholly_far(far[cells], present, loads)
    return far


def _spread_of_others(residuals: Values) -> Values:
    """Return, for each run, the robust standard deviation of the other runs of its prompt; 0 without any.

    A prompt whose runs scatter more than those of others has many far runs by the spread that all have in
    common. Clipped to what the rest of them predicts, they would have the same error in every repeat, which
    the spread over repeats does not show.
    """
    spreads = np.zeros_like(residuals)
    for column in range(residuals.shape[1]):
        others = np.abs(np.delete(residuals, column, axis=1))
        known = (~np.isnan(others)).any(axis=1)
        spreads[known, column] = _OF_NORMAL * _row_medians(others[known])
    return spreads


def _wholly_far(far: Mask, present: Mask, loads: NDArray[np.intp]) -> Mask:
    """Return the cells of prompts and of loads of which all runs are far.

    A prompt that is fast in two repeats and slow in two has its median between them, and four far runs. They
    are how it behaves, and without them nothing of it would be left to predict from.
    """
    of_prompts = far.sum(axis=1) == present.sum(axis=1)
    if len(far) < _LEAST_PROMPTS:  # loads are not told from runs
        return np.broadcast_to(of_prompts[:, None], far.shape)
    numbers, load_of = np.unique(loads, return_inverse=True)
    of_load = np.eye(len(numbers))[load_of]  # shape (repeats, loads)
    of_loads = far.sum(axis=0) @ of_load == present.sum(axis=0) @ of_load
    return np.asarray(of_prompts[:, None] | of_loads[load_of])


def replace_rates(rates: Rates, clipped: Mask) -> Rates:
    """Return rates with those of ``clipped`` replaced by what their prompt and load predict from the others.

    The prediction is the least-squares fit of both effects, so that the mean of a complete table is that of
    the fitted model.
    """
    clipped = clipped & ~np.isnan(rates.table)
    if not clipped.any():
        return rates
    table = rates.table.copy()
    table[clipped] = np.exp(_fit(np.where(clipped, np.nan, np.log(table)), _loads(rates))[clipped])
    return replace(rates, table=table, clipped=clipped)


def _fit(logs: Values, loads: NDArray[np.intp]) -> Values:
    """Return the least-squares fit of logarithms, some of which are missing, by prompts and loads.

    The prompts are eliminated first (Searle et al. 1992, section 5.3), so that only as many equations are
    left as there are loads. A load of which nothing is known has no effect, nor has that of a single prompt.
    """
    present = ~np.isnan(logs)
    middle = logs[present].mean()
    left = np.where(present, logs - middle, 0.0)
    of_load = np.eye(int(loads.max()) + 1)[loads]  # shape (repeats, loads)
    counts = present @ of_load
    in_prompt = np.maximum(counts.sum(axis=1), 1)
    effects = np.zeros(of_load.shape[1])
    if len(logs) > 1:
        shares = counts / in_prompt[:, None]
        reduced = np.diag(counts.sum(axis=0)) - counts.T @ shares
        right = left.sum(axis=0) @ of_load - shares.T @ left.sum(axis=1)
        # what all loads have in common is left open: of all solutions, this is the smallest
        effects = np.linalg.lstsq(reduced, right, rcond=_SOLVED)[0]
    of_prompt = (left.sum(axis=1) - counts @ effects) / in_prompt
    fitted: Values = middle + of_prompt[:, None] + effects[loads]
    return fitted


def _loads(rates: Rates) -> NDArray[np.intp]:
    """Return the number of each repeat's load."""
    return np.array(group_repeats(rates)[0], dtype=np.intp)


def _polish(logs: Values, loads: NDArray[np.intp]) -> Values:
    """Return what remains of logarithms without the medians of prompts and of loads.

    Args:
        logs: shape (prompts, repeats); each row and column has a value.
        loads: the number of each repeat's load. With one or two prompts, loads cannot be told from runs.
    """
    tells_loads = len(logs) >= _LEAST_PROMPTS
    numbers, load_of = np.unique(loads, return_inverse=True)
    place = np.array([int((load_of[:column] == load).sum()) for column, load in enumerate(load_of)])
    of_loads = np.full((len(numbers), len(logs), int(place.max()) + 1), np.nan)
    left = logs
    for _ in range(_SWEEPS):
        left = left - _row_medians(left)[:, None]
        if tells_loads:
            of_loads[load_of, :, place] = left.T
            left -= _row_medians(of_loads.reshape(len(numbers), -1))[load_of]
    return left


def _row_medians(table: Values) -> Values:
    """Return the median of each row's values; numpy's own takes ten times as long over so few of them."""
    counts = (~np.isnan(table)).sum(axis=1)
    ordered = np.sort(table, axis=1)  # NaN is last
    rows = np.arange(len(table))
    return np.asarray((ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2)


def _is_unequal(far: Sequence[int], runs: Sequence[int]) -> bool:
    """Whether one of several arms has significantly more far runs than the others together.

    Fisher's exact test of each arm, Bonferroni over the arms.
    """
    total, total_far = sum(runs), sum(far)
    return len(runs) > 1 and any(
        _p_of_as_many(count, number, total_far, total) * len(runs) < _UNEQUAL
        for count, number in zip(far, runs, strict=True)
    )


def _p_of_as_many(far: int, runs: int, all_far: int, all_runs: int) -> float:
    """Return the chance that so many of an arm's runs are far, if all arms have them alike."""
    least, most = max(far, runs + all_far - all_runs), min(runs, all_far)
    return sum(  # the hypergeometric tail; scipy.stats has it, and takes a second to import
        exp(_log_ways(all_far, k) + _log_ways(all_runs - all_far, runs - k) - _log_ways(all_runs, runs))
        for k in range(least, most + 1)
    )


def _log_ways(things: int, chosen: int) -> float:
    """Return the logarithm of how many ways there are to choose; the number itself may have 30,000 digits."""
    return lgamma(things + 1) - lgamma(chosen + 1) - lgamma(things - chosen + 1)
