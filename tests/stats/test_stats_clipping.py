"""Runs far from their kind count as what their prompt and load predict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ggufspec import stats
from ggufspec.stats import Rates
from tests.support.simulated import bench, flat


def _rates(seed: int, prompts: int, repeats: int, *, between: float = 0.0) -> Rates:
    return Rates.of(bench(seed, prompts, repeats, between=between, within=0.01))


def _slowed(rates: Rates, *places: tuple[int, int], by: float = 0.7) -> Rates:
    table = rates.table.copy()
    for place in places:
        table[place] *= by
    return replace(rates, table=table)


@pytest.mark.parametrize(("prompts", "repeats"), [(8, 3), (2, 6), (1, 8)])
def test_a_slow_run_counts_as_predicted_whatever_its_prompts_speed(prompts: int, repeats: int) -> None:
    rates = _rates(7, prompts, repeats, between=0.5)
    assert stats.clip([rates])[0].runs_clipped == 0
    (clipped,) = stats.clip([_slowed(rates, (0, 1))])
    assert clipped.runs_clipped == 1
    assert clipped.clipped[0, 1]
    assert clipped["p0", 1] == pytest.approx(rates["p0", 1], rel=0.03)
    others = ~clipped.clipped
    assert (clipped.table[others] == rates.table[others]).all()


def test_loads_and_gains_are_no_far_runs() -> None:
    rates = _rates(7, 8, 5)
    loads = np.tile(np.arange(5.0), (8, 1))
    table = rates.table * np.where(loads == 2, 0.7, 1.0)
    assert stats.clip([replace(rates, table=table, loads=loads)])[0].runs_clipped == 0
    rates = _rates(7, 8, 5)
    assert stats.clip([_slowed(rates, *((0, r) for r in range(5)), by=3)])[0].runs_clipped == 0


@pytest.mark.parametrize(("prompts", "repeats"), [(8, 2), (2, 3), (30, 1), (1, 4)])
def test_too_few_runs_show_no_far_one(prompts: int, repeats: int) -> None:
    assert not stats.find_far(_slowed(_rates(7, prompts, repeats), (0, 0), by=0.5)).any()


def test_many_or_lonely_far_runs_are_kept() -> None:
    slow = _slowed(_rates(7, 8, 4), *((prompt, prompt % 4) for prompt in range(8)))
    assert not stats.find_far(slow).any()
    rates = _slowed(Rates.of(flat(bench(1, 4, 5))), (0, 0))
    assert not stats.find_far(rates).any()
    places = [(prompt, prompt % 5) for prompt in range(7)]
    one, other = _slowed(_rates(1, 8, 5), *places), _rates(2, 8, 5)
    assert sum(rates.runs_clipped for rates in stats.clip([one, other])) == 0
    alike = stats.clip([one, _slowed(other, *places)])
    assert [rates.runs_clipped for rates in alike] == [7, 7]


def test_a_prompt_or_a_load_that_is_slow_half_of_the_time_behaves_so() -> None:
    """All of its runs are far from its median, and nothing else says how fast it is."""
    rates = _rates(7, 8, 4, between=0.5)
    halves = _slowed(rates, (0, 1), (0, 2))
    (clipped,) = stats.clip([_slowed(halves, (3, 1))])
    assert (clipped.table[0] == halves.table[0]).all()
    assert clipped.clipped[3, 1]
    loads = np.tile(np.arange(10.0), (4, 1))
    burst = _slowed(replace(_rates(7, 4, 10), loads=loads), (2, 3), (3, 3))
    assert not stats.find_far(burst)[:, 3].any()


def test_a_prompt_that_scatters_more_than_others_keeps_its_runs() -> None:
    """Clipped, they would have the same error in every repeat, which no spread over repeats shows."""
    rates = _rates(7, 8, 5)
    noisy = rates.table.copy()
    noisy[2] *= [1.08, 0.95, 1.0, 0.91, 1.06]
    assert not stats.find_far(replace(rates, table=noisy)).any()
    noisy[2] = rates.table[2] * [1.0, 1.0, 1.0, 0.8, 1.0]
    assert stats.find_far(replace(rates, table=noisy)).sum() == 1


def test_a_clipped_run_narrows_the_interval_and_costs_a_degree_of_freedom() -> None:
    arm, alone = _slowed(_rates(1, 8, 5), (3, 2)), _rates(2, 8, 5)
    measured, clipped = stats.paired_effect(arm, alone), stats.paired_effect(*stats.clip([arm, alone]))
    complete = stats.paired_effect(_rates(1, 8, 5), alone)
    assert complete is not None
    assert clipped.cells == measured.cells == 40
    widths = [effect.half_width() or 0.0 for effect in (measured, clipped, complete)]
    assert widths[1] < widths[0] / 2
    assert widths[1] == pytest.approx(widths[2], rel=0.3)


def test_what_is_predicted_has_no_residual_so_the_variance_is_that_of_the_other_runs() -> None:
    """One prompt: the mean and its error are those of the sample without the clipped run."""
    rates = _slowed(_rates(3, 1, 12), (0, 4), by=0.5)
    alone = Rates.of(flat(dict(rates)))
    clipped = stats.paired_effect(*stats.clip([rates, alone]))
    left_out = stats.paired_effect({cell: rate for cell, rate in rates.items() if cell[1] != 4}, alone)
    assert clipped.mean == pytest.approx(left_out.mean)
    assert clipped.error == pytest.approx(left_out.error)
    assert clipped.degrees == pytest.approx(left_out.degrees)


def test_the_quotient_of_two_arms_is_their_speed_up_after_clipping() -> None:
    arms = stats.clip([_slowed(_rates(1, 8, 5), (3, 2)), _slowed(_rates(2, 8, 5), (1, 1))])
    one, other = (stats.mean_rate(rates) for rates in arms)
    effect = stats.paired_effect(*arms)
    assert one.value / other.value == pytest.approx(effect.ratio.value)


def test_a_run_that_alone_had_its_load_counts_as_its_prompts_mean() -> None:
    rates = _rates(1, 3, 6)
    table = rates.table.copy()
    table[1:, 5] = np.nan
    table[0, 5] *= 0.5
    replaced = stats.replace_rates(replace(rates, table=table), np.isnan(table) | (table < 0.7 * rates.table))
    assert replaced.runs_clipped == 1
    assert replaced["p0", 5] == pytest.approx(np.exp(np.log(table[0, :5]).mean()), rel=0.05)
