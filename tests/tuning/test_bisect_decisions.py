"""The decisions of a bisection, from values alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import validate_bisect

from ggufspec.errors import InconclusiveError
from ggufspec.stats import t_quantile, t_tail
from ggufspec.tuning.bisect import BisectFinding, Measure, Side, Trial, Verdict, choose_next, schedule_looks


def measure(history: list[float], skipped: frozenset[int] = frozenset()) -> Verdict:
    """Bisect values without noise, as an acceptance rate of greedy runs has none."""
    trials: list[Trial] = []
    while True:
        step = choose_next(len(history), trials, skipped, most_repeats=6)
        if isinstance(step, Verdict):
            return step
        assert skipped.isdisjoint(step.places)
        values = tuple(history[place] for place in step.places)
        trials[step.number :] = [Trial(places=step.places, repeats=(values,) * step.repeats)]


@pytest.mark.parametrize("place", range(1, 9))
def test_every_place_of_a_step_is_found(place: int) -> None:
    verdict = measure([0.0] * place + [-0.05] * (9 - place))
    assert verdict.finding is BisectFinding.STEP
    assert (verdict.step.first, verdict.step.second) == (place - 1, place)
    assert (verdict.step.value, verdict.step.lo, verdict.step.hi) == pytest.approx((0.05, 0.05, 0.05))


def test_looks_come_after_complete_repeats_and_end() -> None:
    assert schedule_looks(28) == (4, 6, 9, 14, 21, 28)
    assert schedule_looks(4) == (4,)
    assert schedule_looks(2) == (2,)
    unclear = Trial(places=(0, 1), repeats=((0.0, -0.1), (0.0, 0.1), (0.0, -0.2), (0.0, 0.2)))
    assert choose_next(2, [unclear], frozenset(), most_repeats=6) == Measure(
        number=0, places=(0, 1), repeats=6
    )


def test_lost_repeats_are_measured_again_within_limits() -> None:
    """A disturbed repeat does not complete its look. Without one more, nothing would ever change."""
    three = Trial(places=(0, 1), repeats=((0.0, -0.1), (0.0, 0.1), (0.0, -0.2)), lost=1)
    more = choose_next(2, [three], frozenset(), most_repeats=6)
    assert more == Measure(number=0, places=(0, 1), repeats=5)
    with pytest.raises(InconclusiveError, match="7 of 10 repeats failed or were disturbed"):
        choose_next(2, [replace(three, lost=7)], frozenset(), most_repeats=6)


def test_a_trial_that_was_resumed_ends_at_its_first_clear_look() -> None:
    clear = ((0.0, -0.1), (0.0, -0.11), (0.0, -0.1), (0.0, -0.11))
    longer = Trial(places=(0, 1), repeats=(*clear, (0.0, 9.0), (0.0, 9.0)))
    verdict = choose_next(2, [longer], frozenset(), most_repeats=6)
    assert isinstance(verdict, Verdict)
    assert verdict.judgements[0].trial.repeats == clear


def test_two_steps_and_there_and_back_are_named() -> None:
    halves = measure([0.0] * 3 + [-0.05] * 3 + [-0.1] * 3)
    assert (halves.finding, halves.judgements[-1].side) == (BisectFinding.TWO_STEPS, Side.BETWEEN)
    assert [(rest.first, rest.second) for rest in halves.rests] == [(0, 4), (4, 8)]
    thirds = measure([0.0] * 3 + [-0.03] * 3 + [-0.1] * 3)
    assert thirds.finding is BisectFinding.TWO_STEPS
    assert (thirds.step.second, thirds.rests[0].first, thirds.rests[0].second) == (6, 0, 5)
    back = measure([0.0] * 3 + [-0.2] * 3 + [-0.1] * 3)
    assert back.finding is BisectFinding.NOT_MONOTONIC


def test_ends_are_compared_first() -> None:
    assert measure([0.0] * 5).finding is BisectFinding.NO_DIFFERENCE
    assert measure([0.0] * 4 + [0.1]).finding is BisectFinding.REVERSED


def test_skipped_versions_are_passed_over() -> None:
    verdict = measure([0.0] * 4 + [-0.1] * 5, frozenset({3, 4, 5}))
    assert (verdict.step.first, verdict.step.second) == (2, 6)
    nothing_left = measure([0.0, 0.0, -0.1], frozenset({1}))
    assert nothing_left.finding is BisectFinding.STEP
    assert (nothing_left.step.first, nothing_left.step.second) == (0, 2)


@pytest.mark.parametrize("name", ["no change", "one step of 5 %"])
def test_few_simulated_bisections_are_wrong(name: str) -> None:
    counts, _ = validate_bisect.simulate(name, 0.01, 60)
    assert counts["wrong"] <= 3
    assert counts["right"] >= 55


@pytest.mark.parametrize(
    ("degrees", "value", "tail"),
    [(1, 12.7062, 0.025), (3, 3.1824, 0.025), (10, 4.1437, 0.001), (200, 1.9719, 0.025), (2.5, 0.0, 0.5)],
)
def test_students_distribution_is_that_of_the_tables(degrees: float, value: float, tail: float) -> None:
    assert t_tail(value, degrees) == pytest.approx(tail, rel=1e-4)
    assert t_quantile(tail, degrees) == pytest.approx(value, rel=1e-4, abs=1e-9)
    assert t_tail(-value, degrees) == pytest.approx(1 - tail, rel=1e-4)
