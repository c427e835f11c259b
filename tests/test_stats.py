from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggufspec import stats
from ggufspec.stats import Estimate, intervals
from tests.support.simulated import Rates, bench, grid, known


def test_mean_rate_is_geometric_over_prompts_of_medians_over_repeats() -> None:
    estimate = stats.mean_rate(
        {("a", 0): 10.0, ("a", 1): 1.0, ("a", 2): 11.0, **{("b", r): 40.0 for r in range(3)}}
    )
    assert estimate is not None
    assert estimate.value == pytest.approx(20.0)


def test_per_prompt_is_the_median_and_geometric_between_two() -> None:
    rates = {("a", 0): 3.0, ("a", 1): 1.0, ("a", 2): 2.0, ("b", 0): 10.0, ("b", 1): 40.0}
    assert stats.per_prompt(rates) == pytest.approx({"a": 2.0, "b": 20.0})


def test_one_measurement_has_no_interval() -> None:
    rate = stats.mean_rate({("a", 0): 7.0})
    gain = stats.speedup({("a", 0): 30.0, ("b", 0): 99.0}, {("a", 0): 10.0})
    for estimate, value in ((rate, 7.0), (gain, 3.0)):
        assert estimate is not None
        assert estimate.value == pytest.approx(value)
        assert (estimate.lo, estimate.hi) == (None, None)


def test_nothing_measured_on_both_sides_is_none() -> None:
    a, b = {("a", 0): 1.0}, {("b", 0): 1.0}
    assert stats.mean_rate({}) is None
    assert stats.speedup(a, b) is None
    assert stats.significance(a, b) is None
    assert stats.needed(a, b, precision=0.01) == stats.Needed(repeats=None, prompts=None)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        stats.mean_rate({("a", 0): rate})
    with pytest.raises(ValueError, match="positive"):
        stats.drift([0.0, 1.0], [1.0, rate])


@pytest.mark.parametrize("over", ["repeats", "prompts", "prompts, none repeated"])
def test_few_units_get_students_interval(over: str) -> None:
    logs = np.log([9.0, 10.0, 10.9]) if over != "prompts, none repeated" else np.log(np.arange(9.0, 39.0))
    if over == "repeats":
        rates = grid(logs[None, :], scale=1.0)
        quantile, middle = 4.303, math.log(10.0)
    else:
        rates = grid(np.repeat(logs[:, None], 2 if over == "prompts" else 1, axis=1), scale=1.0)
        quantile, middle = (4.303 if over == "prompts" else 2.045), logs.mean()
    half = quantile * logs.std(ddof=1) / math.sqrt(len(logs))
    expected = [math.exp(middle + sign * half) for sign in (-1, 0, 1)]
    assert known(stats.mean_rate(rates)) == pytest.approx(expected)


def test_a_single_prompts_interval_comes_from_order_statistics() -> None:
    # Six values: the extremes hold the median in 62/64, the next pair in 50/64. 95 % lies a tenth of the way
    # from the first to the second, which Hettmansperger and Sheather turn into 5·0.1 / (1 + 4·0.1) = 5/14.
    estimate = stats.mean_rate(grid(np.array([[3, 1, 6, 4, 2, 5]]) / 100, scale=1.0))
    expected = [math.exp(x / 100) for x in (1 + 5 / 14, 3.5, 6 - 5 / 14)]
    assert known(estimate) == pytest.approx(expected)


def test_speedup_is_paired_so_that_a_shared_slowdown_cancels() -> None:
    slow = bench(1, 8, 3, within=0.3)
    fast = {cell: 2 * rate for cell, rate in slow.items()}
    assert known(stats.speedup(fast, slow)) == pytest.approx((2.0, 2.0, 2.0))


def test_an_incomplete_repeat_counts_with_the_others_of_its_prompt() -> None:
    rates = {("easy", 0): 100.0, ("hard", 0): 10.0, ("easy", 1): 100.0}
    estimate = stats.mean_rate(rates)
    assert estimate is not None
    assert estimate.value == pytest.approx(math.sqrt(1000.0))
    assert stats.mean_rate({("easy", 0): 100.0, ("hard", 1): 10.0}) == stats.mean_rate(
        {("easy", 0): 100.0, ("hard", 0): 10.0}
    )


@pytest.mark.parametrize(
    ("prompts", "repeats"), [(1, 3), (1, 10), (1, 11), (3, 2), (8, 1), (8, 3), (8, 4), (32, 5)]
)
def test_the_inverse_speedup_is_the_mirror_image(prompts: int, repeats: int) -> None:
    a, b = bench(1, prompts, repeats, between=0.1), bench(2, prompts, repeats)
    lo, value, hi = known(stats.speedup(a, b))
    assert known(stats.speedup(b, a)) == pytest.approx((1 / hi, 1 / value, 1 / lo))


def test_interval_does_not_depend_on_units_nor_on_order() -> None:
    rates = bench(1, 8, 3, between=0.1)
    lo, value, hi = known(stats.mean_rate(rates))
    scaled = {cell: 1000 * rate for cell, rate in reversed(rates.items())}
    assert known(stats.mean_rate(scaled)) == pytest.approx((1000 * lo, 1000 * value, 1000 * hi))


def test_two_level_interval_is_near_students_where_both_hold() -> None:
    rates = bench(3, 40, 5, between=0.05)
    medians = np.log(list(stats.per_prompt(rates).values()))
    half = 2.023 * medians.std(ddof=1) / math.sqrt(40)
    lo, value, hi = known(stats.mean_rate(rates))
    assert math.log(hi / value) == pytest.approx(half, rel=0.15)
    assert math.log(value / lo) == pytest.approx(half, rel=0.15)


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 5])
def test_resampled_medians_are_those_of_drawing_repeats_one_by_one(repeats: int) -> None:
    values = np.arange(float(repeats))
    drawn = intervals._resampled_medians([values] * 20)
    every = [float(np.median(draw)) for draw in product(values, repeat=repeats)]
    for median in set(every):
        assert np.mean(drawn == median) == pytest.approx(every.count(median) / len(every), abs=0.01)


@pytest.mark.parametrize(("lo", "hi", "expected"), [(1.9, 2.1, 0.05), (None, None, None), (2.0, 2.0, 0.0)])
def test_relative_half_width(lo: float | None, hi: float | None, expected: float | None) -> None:
    width = Estimate(value=2.0, lo=lo, hi=hi).relative_half_width
    assert width == (None if expected is None else pytest.approx(expected))


_RATES = st.dictionaries(
    st.tuples(st.sampled_from("abcdefg"), st.integers(0, 5)),
    st.one_of(st.sampled_from([1.0, 2.0]), st.floats(1e-6, 1e6)),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(a=_RATES, b=_RATES)
def test_whatever_was_measured_gives_finite_ordered_numbers(a: Rates, b: Rates) -> None:
    compared = stats.significance(a, b)
    estimates = [
        stats.mean_rate(a),
        stats.speedup(a, b),
        compared.ratio if compared else None,
        stats.drift([repeat + ord(prompt) for prompt, repeat in a], list(a.values())),
    ]
    for estimate in estimates:
        if estimate is not None and estimate.lo is not None and estimate.hi is not None:
            assert np.isfinite([estimate.lo, estimate.value, estimate.hi]).all()
            assert estimate.lo <= estimate.value <= estimate.hi
    assert compared is None or 0 <= compared.p_value <= 1
    assert set(stats.outlying_cells(a)) <= a.keys()
    assert math.isfinite(stats.spread(a) or 0.0)
    found = stats.needed(a, b, precision=0.01)
    assert found.repeats is None or found.prompts is None


@pytest.mark.parametrize(("prompts", "repeats"), [(8, 3), (4, 3), (20, 1), (1, 10), (1, 3)])
def test_intervals_cover_the_truth(prompts: int, repeats: int) -> None:
    """In a wide band; scripts/validate_intervals.py is the real check."""
    hits = 0
    for seed in range(300):
        slow = bench(1000 + seed, prompts, repeats, within=0.03)
        fast = bench(seed, prompts, repeats, between=0.04 if prompts > 1 else 0.0, within=0.03)
        lo, _, hi = known(stats.speedup(fast, slow))
        hits += lo <= 1.0 <= hi
    assert 0.90 <= hits / 300 <= 0.99
