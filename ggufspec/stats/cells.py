"""Measurements by (prompt, repeat), as logarithms: ratios become differences, geometric means plain ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Cell = tuple[str, int]
"""One measurement's place: (prompt id, repeat)."""

Values = NDArray[np.float64]


class Rates(Mapping[Cell, float]):
    """Rates by (prompt, repeat), held as a table: thousands of cells are slow in a dict.

    Args:
        prompts: ids in alphabetical order, the rows.
        repeats: the columns.
        table: positive finite rates, shape (prompts, repeats); NaN where nothing was measured.
    """

    def __init__(self, prompts: Sequence[str], repeats: Sequence[int], table: Values) -> None:
        self.rows = {prompt: row for row, prompt in enumerate(prompts)}
        self.columns = {repeat: column for column, repeat in enumerate(repeats)}
        self.table = table

    @classmethod
    def of(cls, rates: Mapping[Cell, float]) -> Rates:
        """Return any mapping as a table."""
        if isinstance(rates, Rates):
            return rates
        prompts, repeats = sorted({prompt for prompt, _ in rates}), sorted({repeat for _, repeat in rates})
        found = cls(prompts, repeats, np.full((len(prompts), len(repeats)), np.nan))
        for (prompt, repeat), rate in rates.items():
            if not (rate > 0 and math.isfinite(rate)):
                raise ValueError(f"a rate is a positive number, not {rate!r}")
            found.table[found.rows[prompt], found.columns[repeat]] = rate
        return found

    def __getitem__(self, cell: Cell) -> float:
        rate = float(self.table[self.rows[cell[0]], self.columns[cell[1]]])
        if math.isnan(rate):
            raise KeyError(cell)
        return rate

    def __iter__(self) -> Iterator[Cell]:
        prompts, repeats = list(self.rows), list(self.columns)
        measured = np.argwhere(~np.isnan(self.table)).tolist()
        return ((prompts[row], repeats[column]) for row, column in measured)

    def __len__(self) -> int:
        return int(np.count_nonzero(~np.isnan(self.table)))


def log_rates(rates: Mapping[Cell, float]) -> dict[str, Values]:
    """Return the sorted natural logarithms of each prompt's rates, prompts in alphabetical order.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    found = Rates.of(rates)
    return _by_prompt(list(found.rows), np.log(found.table))


def log_ratios(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> dict[str, Values]:
    """Return the same of ``rates / baseline``, of the cells that were measured on both sides.

    Raises:
        ValueError: a rate is not a positive finite number.
    """
    a, b = Rates.of(rates), Rates.of(baseline)
    prompts = [prompt for prompt in a.rows if prompt in b.rows]
    repeats = [repeat for repeat in a.columns if repeat in b.columns]
    ours, theirs = (
        np.log(side.table[np.ix_([side.rows[p] for p in prompts], [side.columns[r] for r in repeats])])
        for side in (a, b)
    )
    return _by_prompt(prompts, ours - theirs)


def middle(values: Values) -> float:
    """Return the median of sorted values."""
    return float(values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def _by_prompt(prompts: Sequence[str], logs: Values) -> dict[str, Values]:
    """Return the sorted values of each row that has some; sorting puts NaN last."""
    counts = np.count_nonzero(~np.isnan(logs), axis=1).tolist()
    rows = zip(prompts, np.sort(logs, axis=1), counts, strict=True)
    return {prompt: row[:count] for prompt, row, count in rows if count}
