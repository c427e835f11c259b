"""The random-effects model behind every interval and verdict: prompts × loads, crossed.

A log ratio (or log rate) of prompt p in load l is

    d[p, l] = mean + P[p] + L[l] + E[p, l]

with independent effects: of the prompt, of the load, and what remains of one cell. A *load* is one start of
the processes of both arms: its repeat, or all repeats that shared a process. A *prompt* is a conversation
where prompts are turns of one. The mean over all cells is the estimate. Its variance follows from the mean
squares (Henderson's method III: Searle, Casella and McCulloch 1992, "Variance Components", chapter 5), so
that tables with missing cells need nothing special. Its distribution is Student's t.

Two details differ from the textbook, because with three loads the textbook's interval holds too rarely or is
far too wide. ``scripts/validate_intervals.py`` checks both, ``docs/statistics.md`` has its table.

- A mean square that is no larger than chance often makes it (F test, p > 0.5) is pooled with the residual.
  Without that, eight prompts × three loads have 1.4 degrees of freedom where loads do not differ at all. The
  limit is low on purpose: pooling at p > 0.25 holds in 91 % of benches only, where loads differ a little.
- Satterthwaite's degrees of freedom (1946, Biometrics Bulletin 2:110-114) weigh each level's by the square of
  its share of the variance. With two degrees of freedom in one level that holds in 92 %, so shares are not
  squared here: df = 1 / Σ (share / df). For a single level both are the same.

Where each run had a process of its own, loads are part of the residual, and the columns are repeats. Arms of
one prompt run side by side there, so that a repeat changes both alike; its mean square is pooled unless it is
significant (p < 0.05).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Cell, Rates, Values, align
from ggufspec.stats.disturbance import disturbance_error, widen
from ggufspec.stats.estimates import ERROR, quantile, t_quantile, t_tail

MIN_LOADS = 3
"""Loads of several runs each, below which an arm and its load cannot be told apart."""

ASSUMED_SPREAD = 0.05
"""Standard deviation of the logarithm of a speed from load to load, where too few loads cannot show it.

On quiet machines loads of one model differ by 0.5 to 3 %; 5 % includes another session on the same machine.
"""

_POOLED_ABOVE = 0.5  # p of the F test: for prompts, and for loads that made several runs
_REPEATS_POOLED_ABOVE = 0.05  # for repeats of runs that each had a process of their own
WIDEST = 100.0  # in logarithms: a factor of 1e43 says "unknown", and stays finite
_SLIGHT = 1e-9  # standard errors below this are rounding, not spread


class Gap(StrEnum):
    """Why an estimate has no interval."""

    SINGLE = "single"  # one prompt in one load
    NOT_INTERLEAVED = "not-interleaved"  # fewer than three loads of several runs each
    EQUAL = "equal"  # all values are the same: their spread is not known
    NO_LOOK = "no-look"  # the bench ended before its first look
    UNLIKE_FAILURES = "unlike-failures"  # more runs of one arm failed, so the others are no sample of it
    DISTURBED = "disturbed"  # swapping or heat during many runs, and what that did is not known


@dataclass(frozen=True, kw_only=True)
class Components:
    """The parts of a variance of logarithms, and over how many units each was seen.

    Attributes:
        prompt: variance between prompts (or conversations); None with a single one.
        load: variance between loads (or repeats, where each run had a process of its own); None with one.
        residual: what is left in one cell; None where only one of the two levels was seen.
        prompts: number of prompts or conversations.
        loads: number of loads or repeats.
    """

    prompt: float | None
    load: float | None
    residual: float | None
    prompts: int
    loads: int

    @property
    def shares(self) -> dict[str, float]:
        """Share of the variance of one cell by component, 0 to 1; empty where nothing varies."""
        parts = {"prompt": self.prompt, "load": self.load, "residual": self.residual}
        estimated = {name: variance for name, variance in parts.items() if variance is not None}
        total = sum(estimated.values())
        return {name: variance / total for name, variance in estimated.items()} if total > 0 else {}


@dataclass(frozen=True, kw_only=True)
class Effect:
    """How many times faster one arm is than another: estimate, interval and p of one procedure.

    An arm's rate by itself is the same over 1 token/s. The interval excludes 1 exactly where p < 0.05. What
    follows from it says ``analysis.judging`` alone.

    Attributes:
        mean: of the logarithms, over all cells.
        error: its standard error; None where ``gap`` says why there is none.
        degrees: of freedom, of Student's t; None without a standard error.
        components: what the logarithms vary by.
        cells: how many (prompt, repeat) were averaged: those that both arms have.
        gap: why there is no interval.
        disturbance: the part of the standard error that other programs may have added; a logarithm.
        tests: how many intervals hold together (Bonferroni).
        assumed: from fewer than three loads, the ratio with an interval that assumes how much loads differ.
    """

    mean: float
    error: float | None
    degrees: float | None
    components: Components
    cells: int
    gap: Gap | None
    disturbance: float = 0.0
    tests: int = 1
    assumed: Estimate | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether other programs may have added more than all else that the standard error is of."""
        return self.error is not None and 2 * self.disturbance**2 > self.error**2

    def widened(self, disturbance: float) -> Effect:
        """Return the same with what other programs may have added, as a part of the standard error."""
        if self.error is None or self.degrees is None:
            return self
        error, degrees = widen(self.error, self.degrees, disturbance)
        return replace(self, error=error, degrees=degrees, disturbance=disturbance)

    def without_interval(self, gap: Gap) -> Effect:
        """Return the estimate alone, and why it has no interval."""
        return replace(self, error=None, degrees=None, gap=gap, assumed=None)

    @property
    def p_value(self) -> float | None:
        """Two-sided, for "both are equally fast", times ``tests``; None without a standard error."""
        if self.error is None or self.degrees is None:
            return None
        return min(1.0, 2 * t_tail(abs(self.mean) / self.error, self.degrees) * self.tests)

    def half_width(self, tests: int = 1) -> float | None:
        """Return half of one of so many 95 % intervals, in logarithms; None without a standard error."""
        if self.error is None or self.degrees is None:
            return None
        return min(t_quantile(ERROR / tests / 2, self.degrees) * self.error, WIDEST)

    @property
    def ratio(self) -> Estimate:
        """The geometric mean with its 95 % interval."""
        return self.assumed or Estimate.around_log(self.mean, self.half_width(self.tests))


def paired_effect(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> Effect | None:
    """Compare two arms, paired by prompt and repeat.

    ``Rates`` also say which load made each run and which prompts are turns of one conversation. With plain
    mappings, each run had a process of its own and each prompt stands alone.

    Args:
        rates: positive tokens/s of each (prompt, repeat).
        baseline: the same of the other arm. Cells that one side lacks are left out.

    Returns:
        The comparison, or None when no cell was measured on both sides.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    first, second = align(rates, baseline)
    if not len(first):
        return None
    logs = np.log(first.table) - np.log(second.table)
    disturbance = disturbance_error(first, second)
    effect = _fit_arms(logs, first, second).widened(disturbance)
    if effect.gap is not Gap.NOT_INTERLEAVED:
        return effect
    return replace(effect, assumed=_assume_spread(effect, logs, disturbance))


def _assume_spread(effect: Effect, logs: Values, disturbance: float) -> Estimate:
    """Return a ratio from fewer than three loads, with an interval that assumes how much loads differ.

    What runs within these loads vary by is measured: as if each repeat were a load of its own.

    Args:
        effect: of the loads.
        logs: log ratios, shape (prompts, repeats); NaN where a cell is missing.
        disturbance: what other programs may have added to the mean.
    """
    table = cell_means(logs, range(len(logs)), range(logs.shape[1]))
    within = fit(*table, own_processes=True).widened(disturbance)
    return assume_spread(effect.mean, within.error or 0.0, within.degrees, loads=effect.components.loads)


def assume_spread(mean: float, error: float, degrees: float | None, *, loads: float) -> Estimate:
    """Return a ratio of speeds with an interval that assumes how much loads differ, ``ASSUMED_SPREAD``.

    Args:
        mean: the logarithm of the ratio.
        error: its standard error within the loads that were measured.
        degrees: of freedom of that; None where it is not known.
        loads: of each side, or the harmonic mean of both sides.
    """
    between = 2 * ASSUMED_SPREAD**2 / loads
    variance = error**2 + between
    # Satterthwaite's: a variance that is assumed has any number of degrees of freedom
    free = variance**2 / (error**4 / degrees) if degrees and error else math.inf
    half = quantile(free) * math.sqrt(variance)
    return replace(Estimate.around_log(mean, half), assumed_spread=ASSUMED_SPREAD)


def mean_rate(rates: Mapping[Cell, float]) -> Estimate | None:
    """Return the geometric mean of an arm's rates over all cells.

    Nothing is paired here, so a drift of the machine between repeats is part of the interval: repeats are
    never pooled, and with a single one (or fewer than three loads of several runs) there is no interval.

    Args:
        rates: positive tokens/s of each (prompt, repeat).

    Returns:
        The estimate in tokens/s, or None without any rate.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    table = Rates.of(rates)
    if not len(table):
        return None
    fitted = _fit_arms(np.log(table.table), table, pools_loads=False)
    if fitted.components.loads < 2:
        return Estimate.around_log(fitted.mean)
    return fitted.ratio


def _fit_arms(logs: Values, *arms: Rates, pools_loads: bool = True) -> Effect:
    """Fit the model to logarithms in the cells of one arm, or of two that are compared."""
    groups, own_processes = group_repeats(*arms)
    table = cell_means(logs, _clusters(arms[0]), groups)
    clipped = _share_clipped(*arms)
    return fit(*table, own_processes=own_processes, pools_loads=pools_loads, clipped=clipped)


def fit(
    means: Values,
    counts: Values,
    *,
    own_processes: bool,
    pools_loads: bool = True,
    clipped: float = 0.0,
) -> Effect:
    """Fit the crossed random-effects model of this module.

    Args:
        means: mean logarithm of each cell, shape (prompts, loads); NaN where nothing was measured. Every row
            and every column has a cell.
        counts: how many values each mean has, which is its weight; 0 where there is none.
        own_processes: whether each run had a process of its own; then fewer than three columns will do.
        pools_loads: whether loads are pooled with the residual where an F test finds no difference.
        clipped: share of the cells whose values were replaced by predicted ones, which have no residual.
    """
    weights = counts / counts.sum()
    mean = float(np.nansum(weights * means))
    prompts, loads = means.shape
    squares = _squares(means, weights).less(clipped)
    pooled_above = _REPEATS_POOLED_ABOVE if own_processes else _POOLED_ABOVE
    variance, degrees = squares.variance(pooled_above if pools_loads else None)
    gap = None
    if not own_processes and loads < MIN_LOADS:
        gap = Gap.NOT_INTERLEAVED
    elif degrees <= 0:
        gap = Gap.SINGLE
    elif is_constant(math.sqrt(variance), mean):
        gap = Gap.EQUAL
    return Effect(
        mean=mean,
        error=None if gap else math.sqrt(variance),
        degrees=None if gap else degrees,
        components=Components(
            prompt=squares.prompt.component(squares.residual) if prompts > 1 else None,
            load=squares.load.component(squares.residual) if loads > 1 else None,
            residual=squares.residual if squares.degrees > 0 else None,
            prompts=prompts,
            loads=loads,
        ),
        cells=round(float(counts.sum())),
        gap=gap,
    )


def is_constant(error: float, mean: float) -> bool:
    """Return whether a standard error is mere rounding: then all values are the same."""
    return error <= _SLIGHT * max(1.0, abs(mean))


@dataclass(frozen=True, kw_only=True)
class _Level:
    """One factor of the table.

    Attributes:
        square: its mean square, adjusted for the other factor.
        degrees: of freedom of that.
        ems_coefficient: how often the mean square's expectation has the factor's variance, beside the
            residual's.
        weight: how often the variance of the mean holds it.
    """

    square: float
    degrees: float
    ems_coefficient: float
    weight: float

    def less(self, lost: float, weight: float) -> _Level:
        """Return the same with fewer degrees of freedom, and another weight in the variance of the mean."""
        if self.degrees <= lost:
            return self
        left = self.degrees - lost
        return replace(
            self, square=self.square * self.degrees / left, degrees=left, weight=self.weight * weight
        )

    def component(self, residual: float) -> float:
        """Return the factor's variance, 0 where its mean square is below the residual."""
        return max(self.square - residual, 0.0) / self.ems_coefficient if self.ems_coefficient > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class _Squares:
    """The mean squares of a table: both factors, and the residual with its degrees of freedom."""

    prompt: _Level
    load: _Level
    residual: float
    degrees: float
    weight: float  # how often the variance of the mean holds the residual

    def less(self, clipped: float) -> _Squares:
        """Return the same without the cells that have predicted values, of which each is a share.

        They add nothing to the residuals' sum of squares and take its degrees of freedom; the mean is that of
        the other cells. A table with a single row or column has no residual, and its one level takes its
        place.
        """
        if not clipped:
            return self
        cells = 1 + self.prompt.degrees + self.load.degrees + self.degrees
        lost, weight = clipped * cells, 1 / (1 - clipped)
        if self.degrees > lost:
            residual = self.residual * self.degrees / (self.degrees - lost)
            return replace(self, residual=residual, degrees=self.degrees - lost, weight=self.weight * weight)
        return replace(self, prompt=self.prompt.less(lost, weight), load=self.load.less(lost, weight))

    def variance(self, pool_loads_above: float | None) -> tuple[float, float]:
        """Return the variance of the mean and its degrees of freedom, 0 where nothing is known of it."""
        limits = ((self.prompt, _POOLED_ABOVE), (self.load, pool_loads_above))
        pooled = [level for level, limit in limits if limit is not None and self._p_value(level) > limit]
        kept = [level for level, _ in limits if level not in pooled and level.degrees > 0]
        degrees = self.degrees + sum(level.degrees for level in pooled)
        total = self.residual * self.degrees + sum(level.square * level.degrees for level in pooled)
        residual = total / degrees if degrees > 0 else 0.0
        variance = self.weight * residual + sum(level.weight * level.component(residual) for level in kept)
        # The expectation of a level's mean square is residual + ems_coefficient x component. So the variance
        # is a sum of independent mean squares, each times a factor: what Satterthwaite's rule is for.
        factors = [level.weight / level.ems_coefficient for level in kept]
        parts = [factor * max(level.square, residual) for factor, level in zip(factors, kept, strict=True)]
        of_parts = [level.degrees for level in kept]
        if degrees > 0:
            parts.append(
                abs(self.weight - sum(factors)) * residual
            )  # its factor may be negative; its size counts
            of_parts.append(degrees)
        if not parts or variance <= 0:
            return 0.0, max(of_parts, default=0.0)
        spread = sum(part / of_part for part, of_part in zip(parts, of_parts, strict=True))
        return variance, max(variance / spread, min(of_parts))

    def _p_value(self, level: _Level) -> float:
        """Return the chance of such a mean square if its factor has no effect; 0 where that is unknown."""
        if not level.degrees or not self.degrees or not self.residual:
            return 0.0
        from scipy import special

        return float(special.fdtrc(level.degrees, self.degrees, level.square / self.residual))


def _squares(means: Values, weights: Values) -> _Squares:
    """Return the mean squares of a table with missing cells (Searle et al. 1992, section 5.3).

    With one cell's value or none in each place, the expectations need no matrices: the rows' adjusted sum of
    squares holds their variance (cells - columns) times, the columns' (cells - rows) times.
    """
    present = ~np.isnan(means)
    values = np.where(present, means - np.nanmean(means), 0.0)
    in_row, in_column = present.sum(axis=1), present.sum(axis=0)
    rows, columns = means.shape
    cells = int(present.sum())
    of_rows = float(np.sum(values.sum(axis=1) ** 2 / in_row))
    of_columns = float(np.sum(values.sum(axis=0) ** 2 / in_column))
    if cells == rows * columns:  # nothing is missing, so that rows and columns do not share anything
        adjusted_columns, rank = of_columns, columns - 1
    else:
        reduced = np.diag(in_column.astype(np.float64)) - present.T @ (present / in_row[:, None])
        right = values.sum(axis=0) - present.T @ (values.sum(axis=1) / in_row)
        solution, _, rank, _ = np.linalg.lstsq(reduced, right, rcond=1e-9)
        adjusted_columns = max(float(right @ solution), 0.0)
    adjusted_rows = max(of_rows + adjusted_columns - of_columns, 0.0)
    left = max(float(np.sum(values**2)) - of_rows - adjusted_columns, 0.0)
    apart = columns - int(rank)  # parts of the table that share neither rows nor columns
    degrees = cells - rows - columns + apart
    return _Squares(
        prompt=_level(adjusted_rows, rows - apart, cells - columns, weights.sum(axis=1)),
        load=_level(adjusted_columns, columns - apart, cells - rows, weights.sum(axis=0)),
        residual=left / degrees if degrees else 0.0,
        degrees=float(degrees),
        weight=float(np.sum(weights**2)),
    )


def _level(total: float, degrees: int, ems_coefficient: int, weights: Values) -> _Level:
    """Return a factor; the expectation of ``total`` has its variance ``ems_coefficient`` times."""
    if degrees <= 0:
        return _Level(square=0.0, degrees=0.0, ems_coefficient=0.0, weight=0.0)
    return _Level(
        square=total / degrees,
        degrees=float(degrees),
        ems_coefficient=ems_coefficient / degrees,
        weight=float(np.sum(weights**2)),
    )


def cell_means(logs: Values, clusters: Sequence[int], groups: Sequence[int]) -> tuple[Values, Values]:
    """Return the mean and the number of logarithms of each (cluster, group); without empty rows, columns."""
    present = ~np.isnan(logs)
    cells = np.ix_(clusters, groups)
    shape = max(clusters, default=-1) + 1, max(groups, default=-1) + 1
    sums, counts = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, cells, np.where(present, logs, 0.0))
    np.add.at(counts, cells, present)
    rows, columns = counts.any(axis=1), counts.any(axis=0)
    sums, counts = sums[rows][:, columns], counts[rows][:, columns]
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0), counts


def _share_clipped(*arms: Rates) -> float:
    """Return the share of the cells in which a run of either arm was clipped, 0 to 1."""
    masks = [arm.clipped for arm in arms if arm.clipped is not None]
    if not masks:
        return 0.0
    present = ~np.isnan(arms[0].table)
    return float((np.logical_or.reduce(masks) & present).sum() / present.sum())


def _clusters(rates: Rates) -> list[int]:
    """Return the number of each row's conversation."""
    names = [rates.conversations.get(prompt, prompt) for prompt in rates.prompts]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def group_repeats(*arms: Rates) -> tuple[list[int], bool]:
    """Return the number of each repeat's load, and whether each run had a process of its own.

    Repeats that share a load of either arm are one.
    """
    columns = len(arms[0].repeats)
    group = list(range(columns))
    own_processes = True
    for arm in arms:
        if arm.loads is None:
            continue
        loads = np.where(np.isnan(arm.table), np.nan, arm.loads)
        seen = loads[~np.isnan(loads)]
        numbers, counts = np.unique(seen, return_counts=True)
        own_processes = own_processes and bool((counts < 2).all())
        for number in numbers[counts > 1].tolist():
            sharing = {group[column] for column in np.flatnonzero((loads == number).any(axis=0)).tolist()}
            group = [min(sharing) if of_column in sharing else of_column for of_column in group]
    order = {first: index for index, first in enumerate(dict.fromkeys(group))}
    return [order[first] for first in group], own_processes
