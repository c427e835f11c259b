from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ggufspec import stats
from ggufspec.stats import Estimate
from tests.support import simulated
from tests.support.simulated import Rates, bench, flat, grid, known


def test_rates_are_geometric_means() -> None:
    estimate = stats.mean_rate({("a", 0): 10.0, ("a", 1): 1.0, ("b", 0): 10.0, ("b", 1): 100.0})
    assert estimate.value == pytest.approx(10.0)
    rates = {("a", 0): 3.0, ("a", 1): 1.0, ("a", 2): 9.0, ("b", 0): 10.0, ("b", 1): 40.0}
    assert stats.per_prompt(rates) == pytest.approx({"a": 3.0, "b": 20.0})
    estimate = stats.mean_rate(bench(1, 8, 1))
    assert (estimate.lo, estimate.hi) == (None, None)
    alike = np.random.default_rng(1).normal(0, 0.01, (8, 3))
    drifting = alike + np.array([-0.1, 0.0, 0.1])
    narrow, wide = (known(stats.mean_rate(grid(logs))) for logs in (alike, drifting))
    # the three repeats' means: Student's t with 2 degrees of freedom, 4.303 · 0.1 / √3
    assert math.log(wide[2] / wide[1]) == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=0.1)
    assert math.log(narrow[2] / narrow[1]) < 0.02
    a, b = {("a", 0): 1.0}, {("b", 0): 1.0}
    assert stats.mean_rate({}) is None
    assert stats.paired_effect(a, b) is None
    assert stats.needed(a, b, precision=0.01) == stats.Needed(repeats=None, prompts=None)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        stats.mean_rate({("a", 0): rate})
    with pytest.raises(ValueError, match="positive"):
        stats.drift([0.0, 1.0], [1.0, rate])


def test_computed_rates_have_students_interval_over_prompts() -> None:
    logs = np.log([9.0, 10.0, 10.9])
    half = 4.303 * logs.std(ddof=1) / math.sqrt(3)
    estimate = stats.mean_over_prompts(dict(zip("abc", np.exp(logs).tolist(), strict=True)))
    assert known(estimate) == pytest.approx([math.exp(logs.mean() + s * half) for s in (-1, 0, 1)], rel=1e-4)
    alone = stats.mean_over_prompts({"a": 7.0})
    assert alone.value == pytest.approx(7.0)
    assert (alone.lo, alone.hi) == (None, None)


def test_interval_does_not_depend_on_units_nor_on_order() -> None:
    rates = bench(1, 8, 3, between=0.1)
    lo, value, hi = known(stats.mean_rate(rates))
    scaled = {cell: 1000 * rate for cell, rate in reversed(rates.items())}
    assert known(stats.mean_rate(scaled)) == pytest.approx((1000 * lo, 1000 * value, 1000 * hi))


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
    effect = stats.paired_effect(a, b)
    estimates = [
        stats.mean_rate(a),
        effect.ratio if effect else None,
        stats.drift([repeat + ord(prompt) for prompt, repeat in a], list(a.values())),
    ]
    for estimate in estimates:
        if estimate is not None and estimate.lo is not None and estimate.hi is not None:
            assert np.isfinite([estimate.lo, estimate.value, estimate.hi]).all()
            assert estimate.lo <= estimate.value <= estimate.hi
    if effect is not None:
        assert (effect.p_value is None) == (effect.ratio.lo is None) == (effect.gap is not None)
        assert effect.p_value is None or 0 < effect.p_value <= 1
    clipped = stats.clip([stats.Rates.of(a)])[0]
    assert clipped.keys() == a.keys()
    assert np.isfinite(list(clipped.values())).all()
    assert math.isfinite(stats.spread(a) or 0.0)
    size = stats.needed(a, b, precision=0.01)
    assert size.repeats is None or size.prompts is None


def test_ratios_and_shares_have_intervals() -> None:
    ratio = stats.ratio_of_sums({"a": 3, "b": 5, "c": 4}, dict.fromkeys("abc", 10))
    half = 4.303 * 0.1 / math.sqrt(3)  # the standard deviation of 0.3, 0.5 and 0.4; 2 degrees of freedom
    assert (ratio.value, ratio.lo, ratio.hi) == pytest.approx((0.4, 0.4 - half, 0.4 + half), rel=1e-3)
    # few prompts that accept nearly everything say little of those that do not
    share = stats.ratio_of_sums({"a": 100, "b": 99, "c": 92}, dict.fromkeys("abc", 100), highest=1.0)
    assert 0 < share.lo < share.value - 3 * (share.hi - share.value)
    assert share.value == pytest.approx(0.97)
    assert share.hi < 1
    share = stats.ratio_of_sums({"a": 50, "b": 80}, {"a": 50, "b": 80}, highest=1.0)
    assert share == stats.Estimate(value=1.0, lo=None, hi=None)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=12), st.floats(-5, 5))
def test_an_f_test_of_two_groups_is_the_paired_t_test(pairs: list[tuple[float, float]], shift: float) -> None:
    """So is it after a change of all groups of a repeat alike."""
    from scipy import special

    logs = np.array(pairs).T
    differences = logs[0] - logs[1]
    scatter = float(differences.std(ddof=1))
    if scatter < 1e-6:
        return
    t = float(differences.mean()) / (scatter / math.sqrt(len(differences)))
    expected = 2 * float(special.stdtr(len(differences) - 1, -abs(t)))
    assert stats.p_of_equal_groups(logs) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    moved = logs + shift * np.arange(len(pairs))
    assert stats.p_of_equal_groups(moved) == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_equal_groups_are_found_to_differ_as_rarely_as_the_f_test_says() -> None:
    random = np.random.default_rng(5)
    chances = [stats.p_of_equal_groups(random.normal(size=(4, 3))) or 0.0 for _ in range(2000)]
    assert np.mean(np.array(chances) < 0.05) == pytest.approx(0.05, abs=0.02)  # 4 standard errors


@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_one_group_or_one_repeat_tells_no_difference(shape: tuple[int, int]) -> None:
    assert stats.p_of_equal_groups(np.ones(shape)) is None
    assert stats.p_of_equal_groups(np.array([[1.0, 1.0], [2.0, 2.0]])) is None  # no scatter to compare with


# Tables of cells


def _gaps(seed: int) -> dict[stats.Cell, float]:
    """A bench that lacks a tenth of its cells, and one prompt wholly."""
    random = np.random.default_rng(seed)
    rates = simulated.bench(seed, 7, 5, between=0.2)
    return {cell: rate for cell, rate in rates.items() if cell[0] != f"p{seed}" and random.random() > 0.1}


def test_a_table_of_rates_is_its_mapping() -> None:
    rates = _gaps(1)
    table = stats.Rates.of(rates)
    assert dict(table) == rates
    assert (len(table), ("p1", 0) in table, ("p9", 0) in table) == (len(rates), False, False)
    assert stats.Rates.of(table) is table
    table = stats.Rates(["a", "b"], [0, 1], np.array([[50.0, np.nan], [np.nan, np.nan]]))
    assert dict(table) == {("a", 0): 50.0}
    assert stats.per_prompt(table) == {"a": pytest.approx(50.0)}
    with pytest.raises(KeyError):
        table["a", 1]
    ours, theirs = _gaps(1), _gaps(2)
    a, b = stats.Rates.of(ours), stats.Rates.of(theirs)
    assert stats.mean_rate(a) == stats.mean_rate(ours)
    assert stats.paired_effect(a, b) == stats.paired_effect(ours, theirs)
    assert stats.needed(a, b, precision=0.001) == stats.needed(ours, theirs, precision=0.001)
    assert stats.spread(a) == stats.spread(ours)
    base = {("a", 0): 10.0, ("a", 1): 20.0, ("a", 2): 10.0, ("b", 0): 10.0}
    fast = {("a", 0): 20.0, ("a", 1): 60.0, ("a", 2): 40.0, ("b", 1): 10.0}
    assert stats.per_prompt(fast, base) == {"a": pytest.approx(24 ** (1 / 3))}


# What more runs would show


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


@pytest.mark.parametrize(
    ("prompts", "repeats", "between", "within", "precision", "more"),
    [
        (8, 5, 0.005, 0.06, 0.02, "repeats"),
        (8, 5, 0.06, 0.01, 0.02, "prompts"),
        (1, 10, 0.0, 0.03, 0.01, "repeats"),  # a single prompt can only be repeated
    ],
)
def test_what_is_needed_reaches_the_precision(
    prompts: int, repeats: int, between: float, within: float, precision: float, more: str
) -> None:
    size: dict[str, Any] = {"prompts": prompts, "repeats": repeats}
    noise: dict[str, Any] = {"between": between, "within": within}
    benches = [bench(seed, **size, **noise) for seed in range(100, 130)]
    needed = [stats.needed(rates, flat(rates), precision=precision) for rates in benches]
    typical = int(np.median([found for each in needed if (found := getattr(each, more)) is not None]))
    assert typical > size[more]
    if more == "prompts" or prompts == 1:
        assert {each.repeats if more == "prompts" else each.prompts for each in needed} == {None}
    enough = [bench(seed, **(size | {more: typical}), **noise) for seed in range(100, 130)]
    widths = [stats.paired_effect(rates, flat(rates)).ratio.relative_half_width for rates in enough]
    assert np.median(widths) == pytest.approx(precision, rel=0.2)


def test_precision_needs_two_repeats() -> None:
    rates = bench(1, 1, 10)
    assert stats.needed(rates, flat(rates), precision=1e-6) == stats.Needed(repeats=None, prompts=None)
    rates = bench(1, 8, 3, within=0.001)
    assert stats.needed(rates, flat(rates), precision=0.02) == stats.Needed(repeats=3, prompts=None)
    rates = bench(1, 8, 1, within=0.05)
    found = stats.needed(rates, flat(rates), precision=0.02)
    assert found.repeats is None
    assert found.prompts is not None


def test_drift_is_the_change_over_the_whole_bench() -> None:
    times = [0.0, 1.0, 2.5, 4.0, 7.0, 10.0]
    for order in (range(6), [3, 0, 5, 1, 4, 2]):
        found = stats.drift([times[i] for i in order], [100 * 0.9 ** (times[i] / 10) for i in order])
        assert known(found) == pytest.approx((-0.1, -0.1, -0.1))
    found = stats.drift(range(9), [100.0] * 4 + [50.0] + [100.0] * 4)
    assert (found.value, found.relative_half_width) == (0.0, None)
    logs = [0.0, 0.01, -0.01, 0.02, 0.0]
    slopes = [(logs[j] - logs[i]) / (j - i) for i in range(5) for j in range(i + 1, 5)]
    expected = [math.expm1(4 * f) for f in (min(slopes), np.median(slopes), max(slopes))]
    assert known(stats.drift(range(5), np.exp(logs).tolist())) == pytest.approx(expected)
    many = np.random.default_rng(3).permutation(2001)
    logs = np.log(0.95) * many / 2000 + np.random.default_rng(4).normal(0, 0.01, 2001)
    lo, value, hi = known(stats.drift(many.tolist(), np.exp(logs).tolist()))
    assert lo < -0.05 < hi
    assert value == pytest.approx(-0.05, abs=0.003)
    # without two times there is none, and below five measurements no interval
    assert stats.drift([], []) is None
    assert stats.drift([3.0, 3.0], [1.0, 2.0]) is None
    found = stats.drift([0, 1, 2, 3], [1.0, 2.0, 4.0, 8.0])
    assert found.value == pytest.approx(7.0)
    assert (found.lo, found.hi) == (None, None)


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


def test_a_slow_wave_is_no_trend() -> None:
    random = np.random.default_rng(4)
    n, correlation = 30, 0.6  # of a measurement with the one before it
    hits = 0
    for _ in range(300):
        wave = [random.normal(0, 0.02)]
        for step in random.normal(0, 0.02 * math.sqrt(1 - correlation**2), n - 1):
            wave.append(correlation * wave[-1] + step)
        lo, _, hi = known(stats.drift(range(n), np.exp(wave).tolist()))
        hits += int(lo <= 0 <= hi)
    assert hits / 300 >= 0.9  # an interval for independent noise holds in 70 %


def test_a_trend_is_found_beside_independent_noise() -> None:
    random = np.random.default_rng(5)
    times = np.arange(30.0)
    sure = 0
    for _ in range(100):
        logs = math.log(0.95) * times / times[-1] + random.normal(0, 0.02, len(times))
        sure += int(known(stats.drift(times.tolist(), np.exp(logs).tolist()))[2] < 0)
    assert sure >= 85


def test_measurements_at_nearly_one_time_have_any_slope() -> None:
    found = stats.drift([0.0, 0.001, 3000.0, 6000.0, 6000.001], [50.0, 51.0, 50.5, 51.0, 50.0])
    assert abs(found.value) < 0.1
    assert found.lo == -1.0
    assert 1e6 < found.hi < math.inf


@pytest.mark.parametrize(
    ("more", "errors", "expected"),
    [
        ([3.0, 5.0, 9.0], [1, 1, 1], (1.0, 2.0)),
        ([4.0, 4.0, 4.0], [1, 1, 1], (4.0, 0.0)),
        ([5.0, 4.0, 3.0], [1, 1, 1], (4.0, 0.0)),  # costs do not fall with size: then their mean
        ([-1.0, -2.0, -3.0], [1, 1, 1], (0.0, 0.0)),
        ([3.0, 5.0, 19.0], [0.001, 0.001, 1.0], (1.0, 2.0)),  # what is known best decides
    ],
)
def test_a_rising_line_has_no_negative_part(
    more: list[float], errors: list[float], expected: tuple[float, float]
) -> None:
    assert stats.rising_line([1, 2, 4], more, errors) == pytest.approx(expected, rel=1e-3)
