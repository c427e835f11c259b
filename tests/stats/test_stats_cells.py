from __future__ import annotations

import numpy as np
import pytest

from ggufspec import stats
from ggufspec.stats import Rates
from tests.support import simulated


def _gaps(seed: int) -> dict[stats.Cell, float]:
    """A bench that lacks a tenth of its cells, and one prompt wholly."""
    random = np.random.default_rng(seed)
    rates = simulated.bench(seed, 7, 5, between=0.2)
    return {cell: rate for cell, rate in rates.items() if cell[0] != f"p{seed}" and random.random() > 0.1}


def test_a_table_is_the_mapping_that_it_was_made_of() -> None:
    rates = _gaps(1)
    table = Rates.of(rates)
    assert dict(table) == rates
    assert (len(table), ("p1", 0) in table, ("p9", 0) in table) == (len(rates), False, False)
    assert Rates.of(table) is table


def test_rows_and_cells_without_any_rate_are_absent() -> None:
    table = Rates(["a", "b"], [0, 1], np.array([[50.0, np.nan], [np.nan, np.nan]]))
    assert dict(table) == {("a", 0): 50.0}
    assert stats.per_prompt(table) == {"a": pytest.approx(50.0)}
    with pytest.raises(KeyError):
        table["a", 1]


def test_a_table_and_a_dict_have_the_same_figures() -> None:
    ours, theirs = _gaps(1), _gaps(2)
    a, b = Rates.of(ours), Rates.of(theirs)
    assert stats.mean_rate(a) == stats.mean_rate(ours)
    assert stats.paired_effect(a, b) == stats.paired_effect(ours, theirs)
    assert stats.needed(a, b, precision=0.001) == stats.needed(ours, theirs, precision=0.001)
    assert stats.spread(a) == stats.spread(ours)


def test_each_prompts_speedup_is_the_mean_of_its_paired_ratios() -> None:
    base = {("a", 0): 10.0, ("a", 1): 20.0, ("a", 2): 10.0, ("b", 0): 10.0}
    fast = {("a", 0): 20.0, ("a", 1): 60.0, ("a", 2): 40.0, ("b", 1): 10.0}
    assert stats.per_prompt(fast, base) == {"a": pytest.approx(24 ** (1 / 3))}
