"""The one judgement: what counts as a finding, what is missing otherwise, and what is safe to run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ggufspec import stats
from ggufspec.analysis import Ranking, arms, judge_effect, judge_ratio, rank, review
from ggufspec.analysis.judging import WIDEST_RATIO
from ggufspec.domain import Estimate, Missing, SpeedJudgement, SpeedVerdict
from ggufspec.results import ResultSet
from tests.support import values
from tests.support.simulated import bench, flat, grid


def _judge(middle: float, spread: float, prompts: int = 8, repeats: int = 3, seed: int = 1) -> SpeedJudgement:
    logs = np.random.default_rng(seed).normal(0, spread, (prompts, repeats))
    rates = grid(middle + logs - logs.mean())
    effect = stats.paired_effect(rates, flat(rates))
    return judge_effect(effect, prompts=prompts, repeats=repeats)


@pytest.mark.parametrize(
    ("ratio", "threshold", "verdict"),
    [
        ((1.04, 1.05, 1.06), 0.01, SpeedVerdict.FASTER),
        ((0.94, 0.95, 0.96), 0.01, SpeedVerdict.SLOWER),
        ((1.007, 1.008, 1.009), 0.01, SpeedVerdict.SAME),  # significant, and too small to matter
        ((1.007, 1.008, 1.009), 0.005, SpeedVerdict.FASTER),
        ((0.8, 1.0, 1.2), 0.01, SpeedVerdict.UNDECIDED),
        ((0.99, 1.3, 1.7), 0.01, SpeedVerdict.UNDECIDED),
        ((1.01, 3.0, 9.0), 0.01, SpeedVerdict.UNDECIDED),  # nine times as large at one end as at the other
    ],
)
def test_a_finding_needs_an_interval_that_excludes_one(
    ratio: tuple[float, float, float], threshold: float, verdict: SpeedVerdict
) -> None:
    lo, value, hi = ratio
    assert judge_ratio(Estimate(value=value, lo=lo, hi=hi), threshold=threshold) is verdict


def test_without_an_interval_nothing_is_found() -> None:
    assert judge_ratio(Estimate(value=2.0, lo=None, hi=None)) is SpeedVerdict.UNDECIDED
    assert judge_ratio(None) is SpeedVerdict.UNDECIDED
    judged = judge_effect(None, prompts=0, repeats=0)
    assert (judged.verdict, judged.ratio, judged.missing) == (SpeedVerdict.UNDECIDED, None, (Missing.RUNS,))


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_nothing_is_found_where_it_is_assumed_how_much_loads_differ(ratio: float) -> None:
    assumed = Estimate(value=ratio, lo=0.999 * ratio, hi=1.001 * ratio, assumed_spread=0.05)
    assert judge_ratio(assumed) is SpeedVerdict.ESTIMATE
    logs = np.log(ratio) + np.random.default_rng(1).normal(0, 0.001, (8, 5))
    ids, repeats, loads = [f"p{number}" for number in range(8)], range(5), np.zeros((8, 5))
    tables = [stats.Rates(ids, repeats, table, loads=loads) for table in (np.exp(logs), np.ones((8, 5)))]
    judged = judge_effect(stats.paired_effect(*tables), prompts=8, repeats=5)
    assert (judged.verdict, judged.loads, judged.missing) == (SpeedVerdict.ESTIMATE, 1, (Missing.LOADS,))
    assert not judged.is_decided
    assert not judged.pays
    assert judged.p_value is None
    assert judged.ratio.assumed_spread == stats.ASSUMED_SPREAD


def test_a_judgement_says_what_it_rests_on() -> None:
    judged = _judge(0.4, 0.02)
    assert (judged.verdict, judged.is_decided, judged.pays) == (SpeedVerdict.FASTER, True, True)
    assert (judged.prompts, judged.repeats, judged.loads, judged.missing) == (8, 3, 3, ())
    assert (judged.needed_repeats, judged.needed_prompts) == (None, None)


@pytest.mark.parametrize(("prompts", "repeats"), [(1, 1), (2, 1), (1, 2)])
def test_one_or_two_pairs_of_runs_are_never_a_finding(prompts: int, repeats: int) -> None:
    for seed in range(50):
        judged = _judge(1.0, 1e-4, prompts, repeats, seed)
        assert judged.verdict is SpeedVerdict.UNDECIDED
        assert judged.missing == (Missing.RUNS,)
        assert judged.needed_repeats >= 3


def test_disturbed_runs_need_a_quiet_machine_not_more_runs() -> None:
    rates = bench(1, 8, 3)
    effect = stats.paired_effect({cell: 2 * rate for cell, rate in bench(2, 8, 3).items()}, rates)
    assert effect is not None
    assert judge_effect(effect, prompts=8, repeats=3).verdict is SpeedVerdict.FASTER
    unknown = effect.without_interval(stats.Gap.DISTURBED)
    disturbed = judge_effect(unknown, prompts=8, repeats=3)
    assert (disturbed.verdict, disturbed.missing) == (SpeedVerdict.UNDECIDED, (Missing.QUIET,))


def test_more_repeats_are_asked_for_where_they_would_decide() -> None:
    judged = _judge(0.02, 0.08)
    assert judged.verdict is SpeedVerdict.UNDECIDED
    assert judged.needed_repeats > 3
    nearer = _judge(0.03, 0.08)
    assert nearer.needed_repeats < judged.needed_repeats


def test_an_interval_over_orders_of_magnitude_is_not_kept() -> None:
    judged = _judge(0.2, 1.2, 3, 2)
    assert judged.ratio.value == pytest.approx(math.exp(0.2))
    assert (judged.ratio.lo, judged.p_value, judged.verdict) == (None, None, SpeedVerdict.UNDECIDED)
    assert WIDEST_RATIO < 10


# What is safe to run


def _ranked(*judged: SpeedJudgement) -> Ranking[int]:
    return rank([*enumerate(judged)])


FASTER, FASTEST = values.judgement(1.3), values.judgement(1.6)
SLOWER, SAME = values.judgement(0.7), values.judgement(1.0, 0.005)
OPEN = values.judgement(1.2, 0.4)


def test_only_what_was_found_is_said() -> None:
    ranking = _ranked(FASTER, OPEN, FASTEST, SLOWER)
    assert (ranking.drafts, ranking.best) == (True, 2)
    assert ranking.judgement.family == 4
    assert _ranked(values.judgement(3.0, 2.5), FASTER).best == 1
    ranking = _ranked(SLOWER, OPEN, SAME)
    assert (ranking.verdict, ranking.drafts, ranking.best) == (SpeedVerdict.UNDECIDED, False, 1)
    both = _ranked(SLOWER, SAME)
    assert (both.verdict, both.best) == (SpeedVerdict.SAME, 1)
    assert _ranked(SLOWER).verdict is SpeedVerdict.SLOWER
    assert _ranked().verdict is SpeedVerdict.UNDECIDED
    other = values.judgement(1.6, text_differs=True)
    assert not other.pays
    assert _ranked(other) == Ranking(verdict=SpeedVerdict.UNDECIDED, best=None, judgement=None)
    assert _ranked(other, SLOWER).verdict is SpeedVerdict.SLOWER


# How precise a bench is


def _bench(*, noise: float, between: float) -> ResultSet:
    random = np.random.default_rng(7)
    gains = 1.5 * np.exp(random.normal(0, between, 8))

    def tps(gain: float = 1.0) -> float:
        return float(50 * gain * np.exp(random.normal(0, noise)))

    return values.bench(*values.grid({None: lambda *_: tps(), 3: lambda number, _: tps(gains[number])}))


def _improvable(bench: ResultSet, wished: float) -> bool:
    groups = arms.group(bench)
    return review.improvable(groups, [arm.spec for arm in groups], wished)


def test_repeats_help_against_noise_alone() -> None:
    groups = arms.group(_bench(noise=0.001, between=0.0))
    assert review.wanting(groups, 0.02) == {}
    bench = _bench(noise=0.05, between=0.0)
    (needed,) = review.wanting(arms.group(bench), 0.01).values()
    assert needed.repeats > 3
    assert _improvable(bench, 0.01)
    bench = _bench(noise=0.001, between=0.2)
    (needed,) = review.wanting(arms.group(bench), 0.02).values()
    assert needed.repeats is None
    assert needed.prompts > 8
    assert not _improvable(bench, 0.02)
