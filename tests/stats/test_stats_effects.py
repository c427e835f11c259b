from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import judge_effect, judge_family, rank
from ggufspec.domain import SpeedJudgement, SpeedVerdict
from ggufspec.stats import (
    Comparison,
    Effect,
    Gap,
    Rates,
    adjust,
    family_quantile,
    family_tail,
    moderate,
    paired_effect,
)
from tests.support import values
from tests.support.simulated import bench, known


def _effect(logs: NDArray[np.float64], loads: NDArray[np.float64] | None = None, **more: Any) -> Effect:
    """Compare arms whose log ratios are ``logs``, of shape (prompts, repeats)."""
    prompts, repeats = [f"p{row:02}" for row in range(len(logs))], range(logs.shape[1])
    arm = Rates(prompts, repeats, np.exp(logs), loads=loads, **more)
    effect = stats.paired_effect(arm, replace(arm, table=np.where(np.isnan(logs), np.nan, 1.0)))
    assert effect is not None
    return effect


def _loads(prompts: int, repeats: int) -> NDArray[np.float64]:
    """Return the loads of a bench that loads anew for each repeat."""
    return np.tile(np.arange(float(repeats)), (prompts, 1))


def _two_way(seed: int, prompts: int, loads: int, *sds: float) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    of_prompt, of_load, residual = sds
    return (
        random.normal(0, of_prompt, (prompts, 1))
        + random.normal(0, of_load, (1, loads))
        + random.normal(0, residual, (prompts, loads))
    )


def test_prompts_that_ran_once_get_students_t() -> None:
    logs = _two_way(1, 30, 1, 0.05, 0.0, 0.0)
    effect = _effect(logs)
    expected = scipy.stats.ttest_1samp(logs.ravel(), 0.0)
    assert effect.degrees == 29
    assert effect.p_value == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval()
    assert known(effect.ratio) == pytest.approx(np.exp([interval.low, logs.mean(), interval.high]))


@pytest.mark.parametrize("loads", [None, _loads(1, 6)])
def test_a_single_prompt_gets_students_t_over_its_repeats(loads: NDArray[np.float64] | None) -> None:
    logs = _two_way(1, 1, 6, 0.0, 0.05, 0.0)
    effect = _effect(logs, loads)
    assert effect.p_value == pytest.approx(scipy.stats.ttest_1samp(logs.ravel(), 0.0).pvalue)
    assert (effect.components.prompts, effect.components.loads) == (1, 6)


def test_where_loads_decide_the_interval_is_students_over_their_means() -> None:
    logs = _two_way(2, 8, 4, 0.0, 0.1, 1e-5)
    effect = _effect(logs, _loads(8, 4))
    assert effect.degrees == pytest.approx(3, rel=1e-3)
    assert effect.p_value == pytest.approx(scipy.stats.ttest_1samp(logs.mean(axis=0), 0.0).pvalue, rel=1e-3)


def test_variance_and_degrees_of_a_complete_table_follow_from_its_mean_squares() -> None:
    # Prompts and loads both far above the residual: (MS_P + MS_L - MS_E) / 32, by hand from cell means.
    logs = _two_way(3, 8, 4, 0.05, 0.05, 0.02)
    rows, columns = logs.mean(axis=1), logs.mean(axis=0)
    residuals = logs - rows[:, None] - columns + logs.mean()
    squares = 4 * rows.var(ddof=1), 8 * columns.var(ddof=1), np.sum(residuals**2) / 21
    variance = (squares[0] + squares[1] - squares[2]) / 32
    degrees = 32 * variance / (squares[0] / 7 + squares[1] / 3 + squares[2] / 21)
    effect = _effect(logs, _loads(8, 4))
    assert effect.error == pytest.approx(math.sqrt(variance))
    assert effect.degrees == pytest.approx(max(degrees, 3))
    assert effect.p_value == pytest.approx(
        2 * scipy.stats.t.sf(abs(logs.mean()) / math.sqrt(variance), max(degrees, 3))
    )
    assert effect.components.prompt == pytest.approx((squares[0] - squares[2]) / 4)
    assert effect.components.load == pytest.approx((squares[1] - squares[2]) / 8)
    assert effect.components.residual == pytest.approx(squares[2])
    assert sum(effect.components.shares.values()) == pytest.approx(1.0)


def test_loads_that_do_not_differ_are_pooled_with_the_residual() -> None:
    # Each repeat holds the same values in another order: the load means are equal.
    values = np.random.default_rng(4).normal(0, 0.02, 8)
    logs = np.stack([values, np.roll(values, 1), np.roll(values, 3)], axis=1)
    effect = _effect(logs, _loads(8, 3))
    assert effect.components.load == 0
    assert effect.degrees > 7


def test_own_processes_count_a_repeat_only_where_it_is_significant() -> None:
    logs = _two_way(6, 8, 3, 0.0, 0.012, 0.02)
    own, shared = _effect(logs), _effect(logs, _loads(8, 3))
    assert (own.error or 0) < (shared.error or 0)
    shifted = _effect(logs + np.array([-0.2, 0.0, 0.2]))
    assert shifted.degrees == pytest.approx(2, rel=0.1)


def test_missing_cells_keep_the_components() -> None:
    logs = _two_way(7, 40, 8, 0.05, 0.03, 0.02)
    complete = _effect(logs, _loads(40, 8))
    holes = logs.copy()
    holes[np.random.default_rng(7).random(logs.shape) < 0.2] = np.nan
    effect = _effect(holes, _loads(40, 8))
    assert effect.cells == np.count_nonzero(~np.isnan(holes)) < complete.cells
    assert math.log(effect.ratio.value) == pytest.approx(np.nanmean(holes))
    for name in ("prompt", "load", "residual"):
        assert getattr(effect.components, name) == pytest.approx(getattr(complete.components, name), rel=0.2)


def test_the_expectations_of_mean_squares_hold_with_missing_cells() -> None:
    """Moment estimators are unbiased: their means over many tables are the true variances."""
    random = np.random.default_rng(8)
    holes = random.random((6, 4)) < 0.3
    found = []
    for seed in range(400):
        logs = _two_way(seed, 6, 4, 0.03, 0.02, 0.02)
        logs[holes] = np.nan
        fitted = _effect(logs, _loads(6, 4)).components
        found.append((fitted.prompt, fitted.load, fitted.residual))
    prompt, load, residual = np.mean(np.array(found), axis=0)
    assert residual == pytest.approx(0.02**2, rel=0.1)
    assert prompt == pytest.approx(0.03**2, rel=0.15)  # a little above: negative estimates count as zero
    assert load == pytest.approx(0.02**2, rel=0.25)


def test_turns_of_one_conversation_are_one_unit() -> None:
    of_conversation = np.random.default_rng(9).normal(0, 0.05, (4, 1))
    logs = np.repeat(of_conversation, 5, axis=0) + _two_way(9, 20, 3, 0.0, 0.0, 0.001)
    alone = _effect(logs)
    together = _effect(logs, conversations={f"p{row:02}": f"c{row // 5}" for row in range(20)})
    assert (alone.components.prompts, together.components.prompts) == (20, 4)
    assert together.degrees == pytest.approx(3, rel=0.01)
    assert together.ratio.value == pytest.approx(alone.ratio.value)
    assert (together.error or 0) > 2 * (alone.error or 0)


@pytest.mark.parametrize("repeats", [2, 6])
def test_fewer_than_three_loads_of_several_runs_give_an_estimate_only(repeats: int) -> None:
    """Repeats that share a load are one load, however many they are; by how much loads differ is assumed."""
    loads = np.tile(np.arange(repeats) % 2, (8, 1)).astype(float)
    effect = _effect(0.4 + _two_way(1, 8, repeats, 0.0, 0.0, 0.01), loads)
    assert effect.gap is Gap.NOT_INTERLEAVED
    assert effect.ratio.value == pytest.approx(math.exp(0.4), rel=0.01)
    assert (effect.p_value, effect.degrees, effect.half_width()) == (None, None, None)
    assert effect.components.loads == 2
    assert effect.ratio.assumed_spread == 0.05
    half = math.log(effect.ratio.hi / effect.ratio.value)
    assert half == pytest.approx(1.96 * 0.05, rel=0.05)  # of two loads of each arm; runs add little


def test_an_estimate_has_at_least_the_noise_of_its_runs() -> None:
    one_load = np.zeros((8, 6))
    quiet, noisy = (
        _effect(_two_way(1, 8, 6, 0.0, 0.0, noise), one_load).ratio.relative_half_width or 0.0
        for noise in (0.001, 0.5)
    )
    assert quiet == pytest.approx(math.sinh(1.96 * 0.05 * 2**0.5), rel=0.01)
    assert noisy > 1.2 * quiet


def test_a_load_of_one_arm_joins_repeats() -> None:
    loads = np.array([[0.0, 0.0, 1.0, 2.0]] * 2)
    arm = Rates(["a", "b"], range(4), np.exp(_two_way(1, 2, 4, 0.0, 0.0, 0.1)), loads=loads)
    effect = stats.paired_effect(arm, replace(arm, table=np.ones((2, 4)), loads=None))
    assert (effect.components.loads, effect.cells) == (3, 8)


def test_few_values_have_no_spread() -> None:
    rates = bench(1, 8, 3)
    effect = stats.paired_effect({cell: 2 * rate for cell, rate in rates.items()}, rates)
    assert effect.ratio.value == pytest.approx(2.0)
    assert (effect.gap, effect.p_value, effect.ratio.lo) == (Gap.EQUAL, None, None)
    effect = stats.paired_effect({("a", 0): 30.0, ("b", 0): 99.0}, {("a", 0): 10.0})
    assert effect.ratio.value == pytest.approx(3.0)
    assert (effect.gap, effect.ratio.lo, effect.cells) == (Gap.SINGLE, None, 1)


@pytest.mark.parametrize(("prompts", "repeats"), [(1, 3), (1, 10), (3, 2), (8, 1), (8, 3), (8, 4), (32, 5)])
def test_the_inverse_is_the_mirror_image(prompts: int, repeats: int) -> None:
    a, b = bench(1, prompts, repeats, between=0.1), bench(2, prompts, repeats)
    effect, mirrored = stats.paired_effect(a, b), stats.paired_effect(b, a)
    lo, value, hi = known(effect.ratio)
    assert known(mirrored.ratio) == pytest.approx((1 / hi, 1 / value, 1 / lo))
    assert mirrored.p_value == pytest.approx(effect.p_value)


def test_p_and_interval_agree() -> None:
    for seed in range(200):
        effect = stats.paired_effect(bench(seed, 8, 3), bench(5000 + seed, 8, 3))
        lo, _, hi = known(effect.ratio)
        assert (effect.p_value < 0.05) == (lo > 1 or hi < 1)
    # in a wide band; scripts/validate_intervals.py is the real check
    effects = [stats.paired_effect(bench(seed, 8, 3), bench(5000 + seed, 8, 3)) for seed in range(300)]
    assert np.mean([effect is not None and (effect.p_value or 1) < 0.05 for effect in effects]) < 0.09


@pytest.mark.parametrize(("prompts", "repeats"), [(8, 3), (4, 3), (20, 1), (1, 10), (1, 3)])
def test_intervals_cover_the_truth(prompts: int, repeats: int) -> None:
    """In a wide band; scripts/validate_intervals.py is the real check."""
    hits = 0
    for seed in range(300):
        slow = bench(1000 + seed, prompts, repeats, within=0.03)
        fast = bench(seed, prompts, repeats, between=0.04 if prompts > 1 else 0.0, within=0.03)
        effect = stats.paired_effect(fast, slow)
        lo, _, hi = known(effect.ratio)
        hits += lo <= 1.0 <= hi
    assert 0.90 <= hits / 300 <= 0.995


def test_more_loads_help_where_loads_decide_and_more_prompts_where_prompts_do() -> None:
    components = _effect(_two_way(3, 8, 4, 0.05, 0.05, 0.02), _loads(8, 4)).components
    by_load = replace(components, prompt=1e-8, load=1e-3, residual=1e-8)
    by_prompt = replace(components, prompt=1e-3, load=1e-8, residual=1e-8)
    for of_both, helps, does_not in ((by_load, (8, 8), (16, 4)), (by_prompt, (16, 4), (8, 8))):
        now, better, same = (
            stats.expected_width(of_both, prompts=prompts, loads=loads)
            for prompts, loads in ((8, 4), helps, does_not)
        )
        assert better < 0.75 * now
        assert same == pytest.approx(now, rel=0.01)


# Several arms with one baseline: what is said of the best of them accounts for the choice


@pytest.mark.parametrize("degrees", [2.0, 4.0, 10.0, 30.0])
def test_one_arm_alone_has_students_quantile(degrees: float) -> None:
    assert family_quantile(1, degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), abs=2e-3)
    rare = float(scipy.stats.t.ppf(1 - 0.0005, degrees))
    assert degrees < 4 or family_tail(rare, 1, degrees) == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize(("count", "degrees"), [(2, 10.0), (5, 20.0), (9, 60.0), (20, 1e6)])
def test_quantiles_of_a_family_are_those_of_differences_to_one_baseline(count: int, degrees: float) -> None:
    random = np.random.default_rng(1)
    z = random.normal(size=(100_000, count)) + random.normal(size=(100_000, 1))
    scale = np.sqrt(random.chisquare(degrees, (100_000, 1)) / degrees)
    largest = np.abs(z / np.sqrt(2) / scale).max(axis=1)
    assert family_quantile(count, degrees) == pytest.approx(np.quantile(largest, 0.95), abs=0.03)
    assert family_tail(family_quantile(count, degrees), count, degrees) == pytest.approx(0.05, abs=1e-4)


def test_equal_arms_share_their_variance_and_unequal_ones_do_not() -> None:
    equal, freedom = moderate(np.array([1.0, 1.1, 0.9, 1.0]), np.full(4, 4.0))
    assert equal == pytest.approx(np.ones(4))
    assert freedom == pytest.approx(np.full(4, 16.0))
    unequal, freedom = moderate(np.array([1.0, 10.0, 100.0, 1000.0]), np.full(4, 4.0))
    assert unequal[0] < 2
    assert unequal[3] > 500
    assert freedom.max() < 6
    _, shared = moderate(np.ones(20), np.full(20, 4.0), correlation=0.5)
    assert shared.max() < 16  # twenty differences to one baseline know less than twenty independent ones


def test_the_best_of_equal_arms_is_drawn_to_their_mean() -> None:
    family = [Comparison(value=value, error=0.01, degrees=8.0) for value in (-0.01, 0.0, 0.002, 0.008, 0.012)]
    (*_, best) = adjust(family)
    assert 0.002 < best.value < 0.01
    assert best.lo < 0.012 - 2.3 * 0.01
    assert best.p_value > 0.5
    apart = [Comparison(value=value, error=0.001, degrees=8.0) for value in (0.0, 0.1, 0.2, 0.3, 0.5)]
    assert adjust(apart)[-1].value == pytest.approx(0.5, abs=0.001)


def test_nothing_to_choose_from_changes_nothing() -> None:
    judged = [("only", values.judgement(1.03, 0.02))]
    assert judge_family(judged) == judged
    assert adjust([]) == ()


def _bench(random: np.random.Generator, arms: int, gain: float = 0.0) -> list[SpeedJudgement]:
    """Return the judgements of arms that are as fast as the target, the last one faster by a log gain."""

    def measure(log: float) -> Rates:
        table = np.exp(log + random.normal(0, 0.01, (1, 5)) + random.normal(0, 0.01, (8, 5)))
        loads = np.tile(np.arange(5.0), (8, 1))
        return Rates([f"p{prompt}" for prompt in range(8)], range(5), table, loads=loads)

    alone = measure(0.0)
    effects = [paired_effect(measure(gain if arm == arms - 1 else 0.0), alone) for arm in range(arms)]
    return [judge_effect(effect, prompts=8, repeats=5) for effect in effects]


def test_of_twenty_equal_arms_hardly_any_is_called_faster() -> None:
    random = np.random.default_rng(20)
    benches = [_bench(random, 20) for _ in range(60)]
    rows = sum(any(one.verdict is SpeedVerdict.FASTER for one in judged) for judged in benches)
    ranked = [rank([*enumerate(judged)]) for judged in benches]
    assert rows > 6
    assert sum(ranking.verdict is SpeedVerdict.FASTER for ranking in ranked) <= 3
    assert {ranking.judgement.family for ranking in ranked if ranking.judgement} == {20}


def test_a_faster_one_among_twenty_is_found() -> None:
    random = np.random.default_rng(21)
    found = [rank([*enumerate(_bench(random, 20, gain=0.06))]) for _ in range(20)]
    assert sum(ranking.drafts and ranking.best == 19 for ranking in found) >= 18


def test_nothing_is_found_of_an_arm_that_its_own_row_does_not_say() -> None:
    """Arms together may know their spread better than one by itself; the sentence never outdoes its row."""
    random = np.random.default_rng(22)
    for _ in range(20):
        judged = _bench(random, 3, gain=0.03)
        for alone, (_, together) in zip(judged, judge_family([*enumerate(judged)]), strict=True):
            assert together.ratio.lo <= (alone.ratio.lo or 0.0)
            assert together.ratio.hi >= (alone.ratio.hi or 0.0)
            assert together.verdict in {alone.verdict, SpeedVerdict.UNDECIDED}


def test_what_a_choice_leaves_open_says_what_would_decide_it() -> None:
    just = values.judgement(1.03, 0.028)
    others = [values.judgement(value, 0.028) for value in (0.99, 1.0, 1.01, 1.005)]
    ranking = rank([*enumerate([just, *others])])
    assert ranking.verdict is SpeedVerdict.UNDECIDED
    assert ranking.judgement.missing
    assert ranking.judgement.needed_repeats is None or ranking.judgement.needed_repeats > 3
    judged = [(number, values.judgement(1.05 + number / 100, family=3)) for number in range(3)]
    assert judge_family(judged) == judged
