from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ggufspec import stats
from ggufspec.stats import Estimate
from tests.support.simulated import Rates, bench, grid, known


def test_mean_rate_is_geometric_over_cells() -> None:
    estimate = stats.mean_rate({("a", 0): 10.0, ("a", 1): 1.0, ("b", 0): 10.0, ("b", 1): 100.0})
    assert estimate.value == pytest.approx(10.0)


def test_per_prompt_is_geometric_over_repeats() -> None:
    rates = {("a", 0): 3.0, ("a", 1): 1.0, ("a", 2): 9.0, ("b", 0): 10.0, ("b", 1): 40.0}
    assert stats.per_prompt(rates) == pytest.approx({"a": 3.0, "b": 20.0})


def test_tokens_per_second_without_repeats_have_no_interval_because_drift_cannot_be_seen() -> None:
    estimate = stats.mean_rate(bench(1, 8, 1))
    assert (estimate.lo, estimate.hi) == (None, None)


def test_tokens_per_second_include_what_repeats_differ_by() -> None:
    alike = np.random.default_rng(1).normal(0, 0.01, (8, 3))
    drifting = alike + np.array([-0.1, 0.0, 0.1])
    narrow, wide = (known(stats.mean_rate(grid(logs))) for logs in (alike, drifting))
    # the three repeats' means: Student's t with 2 degrees of freedom, 4.303 · 0.1 / √3
    assert math.log(wide[2] / wide[1]) == pytest.approx(4.303 * 0.1 / math.sqrt(3), rel=0.1)
    assert math.log(narrow[2] / narrow[1]) < 0.02


def test_nothing_measured_on_both_sides_is_none() -> None:
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


def test_a_ratio_of_prompts_of_one_size_has_students_interval_of_their_mean() -> None:
    ratio = stats.ratio_of_sums({"a": 3, "b": 5, "c": 4}, dict.fromkeys("abc", 10))
    half = 4.303 * 0.1 / math.sqrt(3)  # the standard deviation of 0.3, 0.5 and 0.4; 2 degrees of freedom
    assert (ratio.value, ratio.lo, ratio.hi) == pytest.approx((0.4, 0.4 - half, 0.4 + half), rel=1e-3)


def test_a_share_near_one_has_an_interval_that_reaches_further_down() -> None:
    """Few prompts that accept nearly everything say little of those that do not."""
    share = stats.ratio_of_sums({"a": 100, "b": 99, "c": 92}, dict.fromkeys("abc", 100), highest=1.0)
    assert 0 < share.lo < share.value - 3 * (share.hi - share.value)
    assert share.value == pytest.approx(0.97)
    assert share.hi < 1


def test_all_prompts_that_accept_everything_show_no_spread() -> None:
    share = stats.ratio_of_sums({"a": 50, "b": 80}, {"a": 50, "b": 80}, highest=1.0)
    assert share == stats.Estimate(value=1.0, lo=None, hi=None)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=2, max_size=12),
    st.floats(-5, 5),
)
def test_the_f_test_of_two_groups_is_the_paired_t_test(
    pairs: list[tuple[float, float]], shift: float
) -> None:
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
