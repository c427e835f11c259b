"""Measurements by (prompt, repeat), as logarithms, and how much repeats scatter.

In logarithms, ratios become differences, and geometric means plain ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Cell = tuple[str, int]
"""One measurement's place: (prompt id, repeat)."""

Values = NDArray[np.float64]

UNSTABLE_ABOVE = 0.05
"""Relative spread over repeats from which on a machine counts as unstable.

pyperf warns at a standard deviation of 10 %; half of that, because this spread does not count rare outliers.
"""


@dataclass(frozen=True, eq=False)
class Rates(Mapping[Cell, float]):
    """Rates by (prompt, repeat), held as a table: thousands of cells are slow in a dict.

    Attributes:
        prompts: their ids in alphabetical order, the rows.
        repeats: the columns.
        table: positive finite rates, shape (prompts, repeats); NaN where nothing was measured.
        loads: the number of the load (a start of a process or model) that made each rate, same shape; NaN
            where nothing is recorded. None: each run had a process of its own.
        conversations: prompt id -> conversation of which it is a turn; a prompt that is missing stands alone.
        clipped: which rates stand in the place of runs that were far from their kind, same shape; see
            ``clipping``. None for none.
        slowed: the logarithm by which other programs are expected to have slowed each run, same shape; see
            ``disturbance``. None for not at all.
    """

    prompts: Sequence[str]
    repeats: Sequence[int]
    table: Values
    loads: Values | None = None
    conversations: Mapping[str, str] = field(default_factory=dict)
    clipped: NDArray[np.bool_] | None = None
    slowed: Values | None = None

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each prompt."""
        return {prompt: row for row, prompt in enumerate(self.prompts)}

    @cached_property
    def columns(self) -> dict[int, int]:
        """The column of each repeat."""
        return {repeat: column for column, repeat in enumerate(self.repeats)}

    @classmethod
    def of(cls, rates: Mapping[Cell, float]) -> Rates:
        """Return any mapping as a table.

        Raises:
            ValueError: a rate is not a positive finite number.
        """
        if isinstance(rates, Rates):
            return rates
        prompts, repeats = sorted({prompt for prompt, _ in rates}), sorted({repeat for _, repeat in rates})
        table = cls(prompts, repeats, np.full((len(prompts), len(repeats)), np.nan))
        for (prompt, repeat), rate in rates.items():
            if not (rate > 0 and math.isfinite(rate)):
                raise ValueError(f"a rate is a positive number, not {rate!r}")
            table.table[table.rows[prompt], table.columns[repeat]] = rate
        return table

    def where(self, keep: NDArray[np.bool_]) -> Rates:
        """Return the cells in which ``keep``, of the table's shape, is true."""
        return replace(self, table=np.where(keep, self.table, np.nan))

    @property
    def runs_clipped(self) -> int:
        """How many of the rates stand in the place of runs that were clipped."""
        return 0 if self.clipped is None else int((self.clipped & ~np.isnan(self.table)).sum())

    def of_prompts(self, prompts: Collection[str]) -> Rates:
        """Return the rates of some prompts."""
        return self.where(np.isin(self.prompts, [*prompts])[:, None])

    def __getitem__(self, cell: Cell) -> float:
        rate = float(self.table[self.rows[cell[0]], self.columns[cell[1]]])
        if math.isnan(rate):
            raise KeyError(cell)
        return rate

    def __iter__(self) -> Iterator[Cell]:
        measured = np.argwhere(~np.isnan(self.table)).tolist()
        return ((self.prompts[row], self.repeats[column]) for row, column in measured)

    def __len__(self) -> int:
        return int(np.count_nonzero(~np.isnan(self.table)))


def align(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> tuple[Rates, Rates]:
    """Return both sides as tables of the prompts and repeats that both have, NaN where one lacks a cell.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    a, b = Rates.of(rates), Rates.of(baseline)
    prompts = [prompt for prompt in a.prompts if prompt in b.rows]
    repeats = [repeat for repeat in a.repeats if repeat in b.columns]
    first, second = (_select(side, prompts, repeats) for side in (a, b))
    both = ~np.isnan(first.table) & ~np.isnan(second.table)
    return first.where(both), second.where(both)


def _select(rates: Rates, prompts: Sequence[str], repeats: Sequence[int]) -> Rates:
    cells = np.ix_([rates.rows[prompt] for prompt in prompts], [rates.columns[repeat] for repeat in repeats])
    tables = {name: getattr(rates, name) for name in ("table", "loads", "clipped", "slowed")}
    selected = {name: table[cells] for name, table in tables.items() if table is not None}
    return replace(rates, prompts=prompts, repeats=repeats, **selected)


def spread(rates: Mapping[Cell, float]) -> float | None:
    """Return the robust relative standard deviation over repeats of the same prompt; None without repeats.

    1.0483 times the median absolute difference between two repeats, over all pairs of all prompts, in
    logarithms (Shamos 1976; Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408). Unlike
    deviations from medians it is not too small where repeats are few.
    """
    return pooled_spread(np.log(Rates.of(rates).table))


def unstable(rates: Mapping[Cell, float]) -> bool:
    """Return whether repeats scatter by more than ``UNSTABLE_ABOVE``."""
    return (spread(rates) or 0.0) > UNSTABLE_ABOVE


def pooled_spread(logs: Values) -> float | None:
    """Return ``spread`` of the logarithms in each row of a table; NaN where there are none."""
    first, second = np.triu_indices(logs.shape[1], 1)
    pairs = np.abs(logs[:, first] - logs[:, second])
    pairs = pairs[~np.isnan(pairs)]
    return 1.0483 * float(np.median(pairs)) if len(pairs) else None


def p_of_equal_groups(logs: Values) -> float | None:
    """Return the chance of groups that differ as much if all of them had the same mean: an F test.

    Repeats are blocks: what changes all groups of a repeat alike is no part of the error.

    Args:
        logs: mean logarithm of each group in each repeat, shape (groups, repeats), without gaps.

    Returns:
        The chance, 0 to 1; None with fewer than two groups or repeats, or where repeats do not scatter.
    """
    groups, repeats = logs.shape
    if groups < 2 or repeats < 2:
        return None
    residual, degrees = residual_square(logs)
    if residual <= 1e-18:  # rounding alone
        return None
    from scipy import special

    square = repeats * float(np.sum((logs.mean(axis=1) - logs.mean()) ** 2)) / (groups - 1)
    return float(special.fdtrc(groups - 1, degrees, square / residual))


def residual_square(logs: Values) -> tuple[float, int]:
    """Return the mean square of what groups and repeats leave open, and its degrees of freedom.

    Args:
        logs: as those of ``p_of_equal_groups``, of two groups and two repeats at least.
    """
    groups, repeats = logs.shape
    left = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0, keepdims=True) + logs.mean()
    degrees = (groups - 1) * (repeats - 1)
    return float(np.sum(left**2)) / degrees, degrees
