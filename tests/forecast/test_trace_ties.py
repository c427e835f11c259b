"""How sure a trace is of its rounds: compared with every way in which near-ties can fall."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Program
from ggufspec.engines.library import HeadDraft
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace
from tests.support.walks import rounds_of, traced_run

P_MIN = 0.8
N_PREDICT = 8
SPREAD = 0.1
CLOSE, CLEAR = 0.05, 5.0  # nats, far within and far beyond a few times the spread
ODDS = math.log(P_MIN / (1 - P_MIN))
PROGRAMS = (Program.SIMPLE, Program.SERVER)


def _confidence(distance: float) -> float:
    return 1 / (1 + math.exp(-(ODDS + distance)))


def _trace(leads: list[float], distances: list[float], text_leads: list[float] | None = None) -> DraftTrace:
    return DraftTrace(
        prompt_id="p",
        tokens=tuple(range(len(leads))),
        match=tuple(lead > 0 for lead in leads),
        confidence=tuple(map(_confidence, distances)),
        text_leads=tuple(text_leads or [CLEAR] * len(leads)),
        text_spread=SPREAD,
        leads=tuple(leads),
        spread=SPREAD,
    )


def _ways(traced: DraftTrace) -> Iterator[DraftTrace]:
    """Yield the trace with its near-ties decided in every way."""
    bits = [
        (True, False) if abs(lead) == CLOSE else (matches,)
        for lead, matches in zip(traced.leads, traced.match, strict=True)
    ]
    confidences = [
        (_confidence(CLOSE), _confidence(-CLOSE)) if abs(value - P_MIN) < 0.05 else (value,)
        for value in traced.confidence
    ]
    for match, confidence in itertools.product(itertools.product(*bits), itertools.product(*confidences)):
        yield replace(traced, match=match, confidence=confidence)


distances = st.sampled_from([CLEAR] * 4 + [-CLEAR] * 2 + [CLOSE, -CLOSE])


@given(st.data(), st.sampled_from(PROGRAMS), st.integers(1, 4), st.sampled_from([0.0, P_MIN]))
def test_bounds_are_what_near_ties_can_make_of_the_rounds(
    data: st.DataObject, program: Program, n_max: int, p_min: float
) -> None:
    size = trace.needed(N_PREDICT, n_max, program)
    leads, away = (data.draw(st.lists(distances, min_size=size, max_size=size)) for _ in range(2))
    ties = [place for place, value in enumerate(leads) if abs(value) == CLOSE]
    for place in ties[4:]:
        leads[place] = CLEAR  # 16 ways are enough
    for place in [place for place, value in enumerate(away) if abs(value) == CLOSE][4:]:
        away[place] = CLEAR
    traced = _trace(leads, away)
    asked: dict[str, Any] = {"n_max": n_max, "program": program, "n_predict": N_PREDICT, "p_min": p_min}
    known = trace.certainty(traced, traced_run(**asked))
    runs = [rounds_of(way, **asked) for way in _ways(traced)]
    counts = {len(run) for run in runs}
    assert (known.fewest, known.most) == (min(counts), max(counts))
    beginnings = {tuple(one.accepted for one in run[: known.sure]) for run in runs}
    assert len(beginnings) == 1
    assert known.is_sure == (len({tuple(one.accepted for one in run) for run in runs}) == 1)


def test_a_text_that_may_change_is_unsure_from_there_on() -> None:
    leads = [CLEAR] * 12
    text = [CLEAR] * 12
    text[5] = CLOSE
    traced = _trace(leads, leads, text)
    known = trace.certainty(traced, traced_run(n_max=1, n_predict=N_PREDICT))
    assert known == trace.Certainty(rounds=4, sure=2, fewest=4, most=4, keeps_text=False)
    assert trace.first_text_tie(traced) == 5
    assert trace.first_text_tie(_trace(leads, leads)) == math.inf


def test_behind_a_heads_miss_that_is_a_near_tie_anything_may_follow() -> None:
    drafts = tuple(HeadDraft(1, (1.0, 1.0), (CLEAR, -CLOSE)) for _ in range(12))
    traced = replace(_trace([CLEAR] * 12, [CLEAR] * 12), drafts=drafts, leads=None)
    known = trace.certainty(traced, traced_run(n_max=3, n_predict=N_PREDICT))
    assert (known.fewest, known.rounds, known.most, known.sure) == (2, 4, 4, 0)


@pytest.mark.parametrize(("program", "accepted", "sure"), [(Program.SERVER, 0, 7), (Program.SIMPLE, 1, 5)])
def test_a_server_begins_from_the_state_of_another_request(
    program: Program, accepted: int, sure: int
) -> None:
    right, wrong = HeadDraft(1, (1.0, 1.0), (CLEAR, CLEAR)), HeadDraft(0, (1.0,), (-CLEAR,))
    traced = replace(_trace([CLEAR] * 12, [CLEAR] * 12), drafts=(right,) * 12, leads=None)
    traced = replace(traced, served_drafts=(wrong,) * 12)
    taken = trace.steps(traced, traced_run(n_max=1, program=program, n_predict=N_PREDICT))
    assert taken[0].accepted == accepted
    known = trace.certainty(traced, traced_run(n_max=1, program=program, n_predict=N_PREDICT))
    assert (known.rounds, known.sure) == (len(taken), sure)


def test_without_spreads_nothing_is_known() -> None:
    traced = replace(_trace([CLEAR] * 12, [CLEAR] * 12), spread=None)
    assert trace.certainty(traced, traced_run(n_max=1, n_predict=N_PREDICT)) is None
