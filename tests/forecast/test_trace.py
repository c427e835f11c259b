"""Rounds from traces: against counts of real programs, by hand, and as properties."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Program, Round
from ggufspec.engines.library import HeadDraft
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace
from tests.support.walks import RECORDED, read_trace, rounds_of, trace_of, traced_run

N_PREDICT = 120
GREEDY = (Program.SIMPLE, Program.TREE, Program.SERVER)


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_every_count_of_real_programs_is_met(path: Path) -> None:
    traced, runs = read_trace(path)
    assert len(runs) > 20
    for run in runs:
        program = Program(run["program"])
        asked = {name: run[name] for name in ("n_max", "p_min", "build")}
        found = trace.count(trace.steps(traced, traced_run(program=program, n_predict=N_PREDICT, **asked)))
        first = 0 if program is Program.SIMPLE else 1
        assert found.n_accepted == run["n_accept"], run
        assert found.n_rounds + found.n_accepted + first == run["n_predict"], run
        if run["p_min"] == 0:
            assert found.n_drafted == run["n_drafted"], run
        else:  # what the drafter thinks after its own wrong token is only estimated
            assert found.n_drafted == pytest.approx(run["n_drafted"], rel=0.06), run


def test_a_round_ends_with_the_first_mismatch() -> None:
    found = rounds_of(trace_of("1101111111"), n_max=3, program=Program.TREE, n_predict=5)
    # token 0 comes from the prompt; 1 matches, 2 does not; then 3, 4, 5 match and 6 is the target's own
    assert found == (Round(3, 1), Round(3, 3))


def _head(accepted: tuple[int, ...]) -> DraftTrace:
    """A head is very sure of each draft that it begins, and less so of what follows a miss."""
    drafts = tuple(HeadDraft(count, (0.9,) * (count + 1)) for count in accepted)
    return replace(trace_of("1" * len(accepted), confidence=0.4), drafts=drafts)


@pytest.mark.parametrize(
    ("n_max", "wanted"), [(1, "1/0 1/1 1/0 1/1 1/1"), (3, "3/0 3/3 2/2"), (8, "7/0 6/3 2/2")]
)
def test_a_head_accepts_what_a_draft_from_that_place_has_right(n_max: int, wanted: str) -> None:
    """What it proposes further on depends on where its draft began: a bit for each token is not enough."""
    head = _head((2, 0, 3, 1, 0, 1, 2, 1, 0, 0))
    found = rounds_of(head, n_max=n_max, program=Program.SERVER, n_predict=9)
    assert " ".join(f"{one.drafted}/{one.accepted}" for one in found) == wanted


def test_a_head_that_doubts_ends_its_draft() -> None:
    head = _head((0, 1, 3, 0, 0, 0))
    assert head.confidences(1, 4, 4) == (0.9, 0.9, 0.4, 0.4)
    assert head.confidences(2, 3, 4) == (0.9,) * 3
    found = rounds_of(head, n_max=4, program=Program.SERVER, n_predict=6, p_min=0.5)
    assert found == (Round(2, 1), Round(1, 0), Round(1, 0), Round(0, 0))


def test_a_block_is_the_draft_of_its_size_from_its_place() -> None:
    """Its first tokens depend on its length, and a confidence is known for every token of it."""
    blocks = {
        2: {1: HeadDraft(2, (0.9, 0.9)), 4: HeadDraft(0, (0.6, 0.9)), 5: HeadDraft(2, (0.9, 0.4))},
        3: {
            1: HeadDraft(1, (0.9, 0.7, 0.8)),
            3: HeadDraft(3, (0.9, 0.8, 0.3)),
            6: HeadDraft(1, (0.2, 0.9, 0.9)),
        },
    }
    text = replace(trace_of("0" * 9, confidence=0.0), blocks=blocks)
    run = partial(rounds_of, text, program=Program.SERVER)
    assert run(n_max=2, n_predict=8) == (Round(2, 2), Round(2, 0), Round(2, 2))
    assert run(n_max=3, n_predict=7) == (Round(3, 1), Round(3, 3))
    assert run(n_max=2, n_predict=7, p_min=0.5) == (Round(2, 2), Round(2, 0), Round(1, 1))
    assert run(n_max=3, n_predict=7, p_min=0.75) == (Round(1, 1), Round(2, 2), Round(0, 0))
    assert text.is_heads


def test_a_block_that_was_not_recorded_is_refused() -> None:
    """A trace has only the drafts with which rounds of its sizes and values of p_min begin."""
    text = replace(trace_of("0" * 9), blocks={2: {1: HeadDraft(1, (0.9, 0.9))}})
    for n_max in (2, 3):
        with pytest.raises(ValueError, match=f"no draft of {n_max} tokens after"):
            rounds_of(text, n_max=n_max, program=Program.SERVER, n_predict=8)


def test_programs_begin_and_end_where_they_do() -> None:
    traced = trace_of("1" * 20)
    runs = {
        program: rounds_of(traced, n_max=4, program=program, n_predict=10)
        for program in (*GREEDY, Program.PLAIN)
    }
    assert runs[Program.TREE] == (Round(4, 4), Round(4, 4))  # 1 + 5 + 5 = 11 tokens
    assert runs[Program.SIMPLE] == (Round(4, 4), Round(4, 4), Round(4, 4))  # 15: 10 are not more than 10
    assert runs[Program.SERVER] == (Round(4, 4), Round(3, 3))  # 1 + 5 + 4 tokens
    assert runs[Program.PLAIN] == (Round(0, 0),) * 9


def test_the_simple_program_looks_at_what_is_left_only_while_something_is() -> None:
    traced = trace_of("0" * 9)
    today = rounds_of(traced, n_max=3, program=Program.SIMPLE, n_predict=4)
    before = rounds_of(traced, n_max=3, program=Program.SIMPLE, n_predict=4, build=9445)
    assert [one.drafted for one in today] == [3, 2, 1, 3, 3]
    assert [one.drafted for one in before] == [3, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("program", "build", "drafted", "proposals"),
    [
        (Program.SIMPLE, None, 2, 3),
        (Program.SERVER, None, 2, 3),
        (Program.SIMPLE, 9102, 3, 3),
        (Program.TREE, None, 5, 5),
    ],
)
def test_doubt_ends_a_draft(program: Program, build: int | None, drafted: int, proposals: int) -> None:
    sure = (0.9,) * 2 + (0.2, 0.9, 0.9) * 6
    traced = trace_of("1" * 20, confidence=sure if program is Program.SIMPLE else (0.9, *sure[:-1]))
    first = trace.steps(traced, traced_run(n_max=5, p_min=0.5, program=program, n_predict=12, build=build))[0]
    assert (first.drafted, first.accepted, first.proposals) == (drafted, drafted, proposals)


def test_drafts_may_come_to_nothing() -> None:
    found = rounds_of(
        trace_of("1111", confidence=0.3), n_max=2, p_min=0.5, program=Program.SERVER, n_predict=4
    )
    assert found == (Round(0, 0),) * 3


@pytest.mark.parametrize("program", GREEDY)
def test_a_text_that_ended_ends_the_run(program: Program) -> None:
    run = traced_run(n_max=2, program=program, n_predict=100)
    found = trace.count(trace.steps(trace_of("11111", ended=True), run))
    first = 0 if program is Program.SIMPLE else 1
    assert found.n_rounds + found.n_accepted in {5 - first, 6 - first}  # the last round's own token is beyond


def test_a_trace_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="trace p has 8 tokens"):
        rounds_of(trace_of("1" * 8), n_max=2, program=Program.SIMPLE, n_predict=8)
    with pytest.raises(ValueError, match="trace p has 8 tokens"):
        rounds_of(trace_of("0" * 8), n_max=2, program=Program.TREE, n_predict=8)
    run = traced_run(n_max=2, program=Program.SIMPLE, n_predict=8)
    with pytest.raises(ValueError, match="trace p has 8 tokens"):
        trace.expected(trace_of("0" * 8, overlap=(0.5,) * 8), run)
    with pytest.raises(ValueError, match="no overlaps"):
        trace.expected(trace_of("1" * 8), traced_run(n_max=2, n_predict=8))


def test_expectation_is_the_sum_over_all_outcomes() -> None:
    overlap = (0.5, 0.9, 0.2, 0.7, 0.4, 0.8, 1.0, 0.1)
    traced = trace_of("0" * 8, overlap=overlap)
    total = {"rounds": 0.0, "drafted": 0.0, "accepted": 0.0}
    for bits in itertools.product((False, True), repeat=8):  # what each place would accept
        chance = 1.0
        for bit, share in zip(bits, overlap, strict=True):
            chance *= share if bit else 1 - share
        match = "".join("01"[bit] for bit in bits)
        counts = trace.count(trace.steps(trace_of(match), traced_run(n_max=3, n_predict=8)))
        total["rounds"] += chance * counts.n_rounds
        total["drafted"] += chance * counts.n_drafted
        total["accepted"] += chance * counts.n_accepted
    found = trace.count(trace.expected(traced, traced_run(n_max=3, n_predict=8)))
    assert found.n_rounds == pytest.approx(total["rounds"])
    assert found.n_drafted == pytest.approx(total["drafted"])
    assert found.n_accepted == pytest.approx(total["accepted"])


@pytest.mark.parametrize("n_max", [1, 3, 8])
@pytest.mark.parametrize("alpha", [0.3, 0.8])
def test_expectation_tends_to_the_geometric_series(alpha: float, n_max: int) -> None:
    size = 4000
    traced = trace_of("0" * size, overlap=(alpha,) * size)
    run = traced_run(n_max=n_max, program=Program.TREE, n_predict=size - n_max - 1)
    found = trace.count(trace.expected(traced, run))
    series = (1 - alpha ** (n_max + 1)) / (1 - alpha)  # Leviathan et al. 2023, equation 1
    assert 1 + found.n_accepted / found.n_rounds == pytest.approx(series, rel=1e-3)


bits = st.text("01", min_size=30, max_size=60)


@given(match=bits, n_max=st.integers(0, 12), program=st.sampled_from(GREEDY))
def test_greedy_is_the_expectation_of_certain_overlaps(match: str, n_max: int, program: Program) -> None:
    traced = trace_of(match, overlap=tuple(float(bit) for bit in match))
    run = traced_run(n_max=n_max, program=program, n_predict=30 - n_max - 1)
    assert trace.expected(traced, run) == trace.steps(traced, run)


@given(
    match=bits, n_max=st.integers(1, 12), program=st.sampled_from(GREEDY), p_min=st.sampled_from((0.0, 0.5))
)
def test_rounds_add_up_to_the_tokens_wanted(match: str, n_max: int, program: Program, p_min: float) -> None:
    asked = 30 - n_max - 1
    sure = tuple(0.3 + 0.1 * (place % 5) for place in range(len(match)))
    taken = trace.steps(
        trace_of(match, confidence=sure),
        traced_run(n_max=n_max, program=program, n_predict=asked, p_min=p_min),
    )
    tokens = sum(1 + step.accepted for step in taken) + (program is not Program.SIMPLE)
    assert all(0 <= step.accepted <= step.drafted <= step.proposals <= n_max for step in taken)
    if program is Program.SERVER:
        assert tokens == asked
    else:
        assert asked < tokens <= trace.needed(asked, n_max, program)


@given(match=bits, n_max=st.integers(1, 11))
def test_longer_drafts_never_need_more_rounds(match: str, n_max: int) -> None:
    def rounds(size: int) -> int:
        return len(rounds_of(trace_of(match), n_max=size, program=Program.SERVER, n_predict=30))

    assert rounds(n_max + 1) <= rounds(n_max)


# How sure a trace is of its rounds: compared with every way in which near-ties can fall


P_MIN = 0.8
N_TIED = 8
SPREAD = 0.1
CLOSE, CLEAR = 0.05, 5.0  # nats, far within and far beyond a few times the spread
ODDS = math.log(P_MIN / (1 - P_MIN))
PROGRAMS = (Program.SIMPLE, Program.SERVER)


def _confidence(distance: float) -> float:
    return 1 / (1 + math.exp(-(ODDS + distance)))


def _tied_trace(
    leads: list[float], distances: list[float], text_leads: list[float] | None = None
) -> DraftTrace:
    return trace_of(
        [lead > 0 for lead in leads],
        confidence=[*map(_confidence, distances)],
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
def test_bounds_hold_for_near_ties(data: st.DataObject, program: Program, n_max: int, p_min: float) -> None:
    size = trace.needed(N_TIED, n_max, program)
    leads, away = (data.draw(st.lists(distances, min_size=size, max_size=size)) for _ in range(2))
    ties = [place for place, value in enumerate(leads) if abs(value) == CLOSE]
    for place in ties[4:]:
        leads[place] = CLEAR  # 16 ways are enough
    for place in [place for place, value in enumerate(away) if abs(value) == CLOSE][4:]:
        away[place] = CLEAR
    traced = _tied_trace(leads, away)
    asked: dict[str, Any] = {"n_max": n_max, "program": program, "n_predict": N_TIED, "p_min": p_min}
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
    traced = _tied_trace(leads, leads, text)
    known = trace.certainty(traced, traced_run(n_max=1, n_predict=N_TIED))
    assert known == trace.Certainty(rounds=4, sure=2, fewest=4, most=4, keeps_text=False)
    assert trace.first_text_tie(traced) == 5
    assert trace.first_text_tie(_tied_trace(leads, leads)) == math.inf


def test_behind_a_heads_miss_that_is_a_near_tie_anything_may_follow() -> None:
    drafts = tuple(HeadDraft(1, (1.0, 1.0), (CLEAR, -CLOSE)) for _ in range(12))
    traced = replace(_tied_trace([CLEAR] * 12, [CLEAR] * 12), drafts=drafts, leads=None)
    known = trace.certainty(traced, traced_run(n_max=3, n_predict=N_TIED))
    assert (known.fewest, known.rounds, known.most, known.sure) == (2, 4, 4, 0)


@pytest.mark.parametrize(("program", "accepted", "sure"), [(Program.SERVER, 0, 7), (Program.SIMPLE, 1, 5)])
def test_a_server_begins_from_another_requests_state(program: Program, accepted: int, sure: int) -> None:
    right, wrong = HeadDraft(1, (1.0, 1.0), (CLEAR, CLEAR)), HeadDraft(0, (1.0,), (-CLEAR,))
    traced = replace(_tied_trace([CLEAR] * 12, [CLEAR] * 12), drafts=(right,) * 12, leads=None)
    traced = replace(traced, served_drafts=(wrong,) * 12)
    taken = trace.steps(traced, traced_run(n_max=1, program=program, n_predict=N_TIED))
    assert taken[0].accepted == accepted
    known = trace.certainty(traced, traced_run(n_max=1, program=program, n_predict=N_TIED))
    assert (known.rounds, known.sure) == (len(taken), sure)


def test_without_spreads_nothing_is_known() -> None:
    traced = replace(_tied_trace([CLEAR] * 12, [CLEAR] * 12), spread=None)
    assert trace.certainty(traced, traced_run(n_max=1, n_predict=N_TIED)) is None
