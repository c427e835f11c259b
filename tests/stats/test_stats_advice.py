from __future__ import annotations

import math

import numpy as np
import pytest

from ggufspec import stats
from tests.support.simulated import Rates, bench, flat, known


@pytest.mark.parametrize("repeats", [2, 3, 5, 10])
def test_spread_is_the_noise_of_repeats_not_of_prompts(repeats: int) -> None:
    found = [stats.spread(bench(seed, 20, repeats, between=0.5, within=0.03)) or 0.0 for seed in range(30)]
    assert np.mean(found) == pytest.approx(0.03, rel=0.05)


def test_spread_ignores_rare_outliers_and_needs_repeats() -> None:
    rates = bench(1, 8, 5, within=0.02)
    before = stats.spread(rates)
    assert before is not None
    rates["p3", 2] *= 0.1
    assert stats.spread(rates) == pytest.approx(before, rel=0.25)
    assert stats.spread(bench(1, 8, 1)) is None


@pytest.mark.parametrize(("within", "expected"), [(0.01, False), (0.04, False), (0.07, True), (0.2, True)])
def test_unstable_machines_are_named(within: float, expected: bool) -> None:
    assert stats.unstable(bench(1, 20, 5, within=within)) is expected
    assert not stats.unstable(bench(1, 20, 1, within=within))


def _width(rates: Rates) -> float:
    effect = stats.paired_effect(rates, flat(rates))
    assert effect.ratio.relative_half_width is not None
    return effect.ratio.relative_half_width


def _seeded(prompts: int, repeats: int, between: float, within: float) -> list[Rates]:
    return [bench(seed, prompts, repeats, between=between, within=within) for seed in range(100, 130)]


def test_needed_repeats_reach_the_precision() -> None:
    found = [stats.needed(rates, flat(rates), precision=0.02).repeats for rates in _seeded(8, 5, 0.005, 0.06)]
    typical = int(np.median([repeats for repeats in found if repeats is not None]))
    assert typical > 5
    assert np.median([_width(rates) for rates in _seeded(8, typical, 0.005, 0.06)]) == pytest.approx(
        0.02, rel=0.2
    )


def test_prompts_are_needed_where_prompts_differ_too_much() -> None:
    found = [stats.needed(rates, flat(rates), precision=0.02) for rates in _seeded(8, 5, 0.06, 0.01)]
    assert {each.repeats for each in found} == {None}
    typical = int(np.median([each.prompts or 0 for each in found]))
    assert np.median([_width(rates) for rates in _seeded(typical, 5, 0.06, 0.01)]) == pytest.approx(
        0.02, rel=0.2
    )


def test_a_single_prompt_can_only_be_repeated() -> None:
    found = [stats.needed(rates, flat(rates), precision=0.01) for rates in _seeded(1, 10, 0.0, 0.03)]
    assert {each.prompts for each in found} == {None}
    typical = int(np.median([each.repeats or 0 for each in found]))
    assert np.median([_width(rates) for rates in _seeded(1, typical, 0.0, 0.03)]) == pytest.approx(
        0.01, rel=0.2
    )
    rates = bench(1, 1, 10)
    assert stats.needed(rates, flat(rates), precision=1e-6) == stats.Needed(repeats=None, prompts=None)


def test_a_bench_that_is_precise_enough_needs_no_more() -> None:
    rates = bench(1, 8, 3, within=0.001)
    assert stats.needed(rates, flat(rates), precision=0.02) == stats.Needed(repeats=3, prompts=None)


def test_one_repeat_cannot_tell_what_repeats_would_bring() -> None:
    rates = bench(1, 8, 1, within=0.05)
    found = stats.needed(rates, flat(rates), precision=0.02)
    assert found.repeats is None
    assert found.prompts is not None


def test_drift_is_the_change_over_the_whole_bench() -> None:
    times = [0.0, 1.0, 2.5, 4.0, 7.0, 10.0]
    rates = [100 * 0.9 ** (t / 10) for t in times]
    assert known(stats.drift(times, rates)) == pytest.approx((-0.1, -0.1, -0.1))
    shuffled = [3, 0, 5, 1, 4, 2]
    assert known(stats.drift([times[i] for i in shuffled], [rates[i] for i in shuffled])) == pytest.approx(
        (-0.1, -0.1, -0.1)
    )


def test_drift_ignores_one_slow_run() -> None:
    found = stats.drift(range(9), [100.0] * 4 + [50.0] + [100.0] * 4)
    assert found.value == 0.0
    assert found.relative_half_width is None


def test_five_measurements_bound_drift_by_their_extreme_slopes() -> None:
    logs = [0.0, 0.01, -0.01, 0.02, 0.0]
    slopes = [(logs[j] - logs[i]) / (j - i) for i in range(5) for j in range(i + 1, 5)]
    expected = [math.expm1(4 * f) for f in (min(slopes), np.median(slopes), max(slopes))]
    assert known(stats.drift(range(5), np.exp(logs).tolist())) == pytest.approx(expected)


def test_drift_without_two_times_is_none_and_below_five_without_interval() -> None:
    assert stats.drift([], []) is None
    assert stats.drift([3.0, 3.0], [1.0, 2.0]) is None
    found = stats.drift([0, 1, 2, 3], [1.0, 2.0, 4.0, 8.0])
    assert found.value == pytest.approx(7.0)
    assert (found.lo, found.hi) == (None, None)
    with pytest.raises(ValueError, match="2 times for 1"):
        stats.drift([0.0, 1.0], [1.0])


@pytest.mark.parametrize("n", [6, 12, 60])
def test_drift_intervals_cover_the_truth(n: int) -> None:
    random = np.random.default_rng(n)
    times = np.sort(random.uniform(0, 100, n))
    truth = 0.97 ** (np.ptp(times) / 100) - 1
    hits = 0
    for _ in range(400):
        logs = times / 100 * math.log(0.97) + random.normal(0, 0.02, n)
        lo, _, hi = known(stats.drift(times.tolist(), np.exp(logs).tolist()))
        hits += int(lo <= truth <= hi)
    assert 0.92 <= hits / 400 <= 0.99


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([3.0, 5.0, 9.0], (1.0, 2.0)),
        ([4.0, 4.0, 4.0], (4.0, 0.0)),
        ([5.0, 4.0, 3.0], (4.0, 0.0)),  # costs do not fall with size: then their mean
        ([-1.0, -2.0, -3.0], (0.0, 0.0)),
    ],
)
def test_a_rising_line_has_no_negative_part(more: list[float], expected: tuple[float, float]) -> None:
    assert stats.rising_line([1, 2, 4], more, errors=[1, 1, 1]) == pytest.approx(expected)


def test_a_rising_line_follows_what_is_known_best() -> None:
    start, slope = stats.rising_line([1, 2, 4], [3.0, 5.0, 19.0], errors=[0.001, 0.001, 1.0])
    assert (start, slope) == pytest.approx((1.0, 2.0), rel=1e-3)
