"""Several arms with one baseline: what is said of the best of them accounts for the choice."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from ggufspec.analysis import judge_effect, judge_family, rank
from ggufspec.domain import SpeedJudgement, SpeedVerdict
from ggufspec.stats import Comparison, Rates, adjust, family_quantile, family_tail, moderate, paired_effect
from tests.support import values


@pytest.mark.parametrize("degrees", [2.0, 4.0, 30.0])
def test_one_arm_alone_has_students_quantile(degrees: float) -> None:
    assert family_quantile(1, degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), abs=2e-3)


@pytest.mark.parametrize(("count", "degrees"), [(2, 10.0), (5, 20.0), (9, 60.0), (20, 1e6)])
def test_quantiles_of_a_family_are_those_of_differences_to_one_baseline(count: int, degrees: float) -> None:
    random = np.random.default_rng(1)
    z = random.normal(size=(100_000, count)) + random.normal(size=(100_000, 1))
    scale = np.sqrt(random.chisquare(degrees, (100_000, 1)) / degrees)
    largest = np.abs(z / np.sqrt(2) / scale).max(axis=1)
    assert family_quantile(count, degrees) == pytest.approx(np.quantile(largest, 0.95), abs=0.03)
    assert family_tail(family_quantile(count, degrees), count, degrees) == pytest.approx(0.05, abs=1e-4)


def test_small_levels_agree_with_students_distribution() -> None:
    for degrees in (4.0, 10.0):
        value = float(scipy.stats.t.ppf(1 - 0.0005, degrees))
        assert family_tail(value, 1, degrees) == pytest.approx(0.001, rel=0.05)


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


def test_intervals_of_a_sequence_of_looks_account_for_all_arms_already() -> None:
    judged = [(number, values.judgement(1.05 + number / 100, family=3)) for number in range(3)]
    assert judge_family(judged) == judged
