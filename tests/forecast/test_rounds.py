"""Rounds of one run, replayed for smaller drafts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from ggufspec import forecast
from ggufspec.domain import Round
from ggufspec.forecast import RoundsRun, trace
from tests.support.walks import rounds_of, trace_of, traced_run

LARGEST = 8
TEXTS = st.lists(st.booleans(), min_size=40, max_size=120)


def _rounds(text: list[bool], n_max: int) -> tuple[Round, ...]:
    """The rounds of a run over a text of which the drafter has these tokens right."""
    return rounds_of(trace_of(text), n_max=n_max, n_predict=len(text))


def _replayed(rounds: tuple[Round, ...], chance: float, n_max: int) -> float:
    made = RoundsRun(prompt_id="p", rounds=rounds).trace(chance)
    taken = trace.expected(made, traced_run(n_max=n_max, n_predict=len(made.tokens)))
    return trace.count(taken).n_rounds


@given(TEXTS, st.integers(1, LARGEST))
def test_the_rounds_of_a_smaller_draft_follow(text: list[bool], n_max: int) -> None:
    """They are exact, but for the tokens behind drafts that were accepted as a whole: these bound them."""
    rounds, shown = _rounds(text, LARGEST), len(_rounds(text, n_max))
    most, fewest = (_replayed(rounds, chance, n_max) for chance in (0.0, 1.0))
    assert fewest <= shown <= most
    if all(accepted < drafted for drafted, accepted in rounds):
        assert fewest == most


@given(TEXTS, st.integers(1, LARGEST))
def test_counts_by_position_tell_nearly_as_much_as_their_order(text: list[bool], n_max: int) -> None:
    """Order matters only behind drafts that were accepted as a whole."""
    rounds = [entry for entry in _rounds(text, LARGEST) if entry.drafted == LARGEST]
    accepted_at = [sum(accepted > place for _, accepted in rounds) for place in range(LARGEST)]
    counted = forecast.from_counts(accepted_at, len(rounds))
    assert Counter(counted) == Counter(rounds)
    assert _replayed(counted, 0.0, n_max) == pytest.approx(_replayed(tuple(rounds), 0.0, n_max))


def test_times_of_runs_tell_what_a_round_costs() -> None:
    """Of runs whose last rounds draft less, too."""
    sizes = {1: (Round(1, 1),) * 20, 4: (*(Round(4, 2),) * 20, Round(2, 0)), 16: (Round(16, 3), Round(7, 1))}

    def seconds(drafted: int) -> float:
        return 1.0 + 0.1 * drafted

    runs = [
        RoundsRun(prompt_id=f"p{size}", rounds=rounds, seconds=sum(seconds(one.drafted) for one in rounds))
        for size, rounds in sizes.items()
    ]
    curve = forecast.time_rounds(runs, 1.0)
    assert {point.tokens - 1: point.seconds.value for point in curve.verify} == pytest.approx(
        {size: seconds(size) for size in (0, *sizes)}, rel=1e-4
    )


def test_rounds_of_another_size_than_the_last_may_take_longer() -> None:
    """Short requests have few others: without this, they would make their size look slow."""
    rounds = {
        "none": (Round(0, 0),) * 9,
        "one": (Round(1, 0), Round(0, 0)),
        "most": (Round(2, 0), Round(1, 0), Round(0, 0)),
        "long": (*(Round(2, 1),) * 30, Round(1, 0), Round(0, 0)),
    }
    seconds = {"none": 9 + 0.5, "one": 2.5 + 1.0, "most": 2 + 1.5 + 1 + 1.5, "long": 60 + 1.5 + 1 + 1.5}
    runs = [RoundsRun(prompt_id=name, rounds=rounds[name], seconds=seconds[name]) for name in rounds]
    curve = forecast.time_rounds(runs, resizes=True)
    assert [point.seconds.value for point in curve.verify] == pytest.approx([1.0, 1.5, 2.0])
    assert curve.resize_s.value == pytest.approx(0.5)


def test_a_long_run_that_was_disturbed_makes_no_other_size_slower() -> None:
    """It looks as if rounds of a new size took less time than others."""
    runs = [
        RoundsRun(prompt_id=f"{size}", rounds=(Round(size, size),), seconds=1.0 + 0.1 * size)
        for size in (0, 1, 4, 16)
    ]
    runs.append(RoundsRun(prompt_id="long", rounds=(Round(16, 16),) * 8, seconds=8 * 2.6 * 1.2))
    curve = forecast.time_rounds(runs, resizes=True)
    assert curve.resize_s is not None
    assert curve.resize_s.value == 0
    assert [point.seconds.value for point in curve.verify[:3]] == pytest.approx([1.0, 1.1, 1.4])
