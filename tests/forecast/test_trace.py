"""Rounds from traces: against counts of real programs, by hand, and as properties."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Program
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


def _head(*accepted: int) -> DraftTrace:
    """A head is very sure of each draft that it begins, and less so of what follows a miss."""
    drafts = tuple(HeadDraft(count, (0.9,) * (count + 1)) for count in accepted)
    return trace_of("1" * len(accepted), confidence=0.4, drafts=drafts)


# what a head proposes further on depends on where its draft began: a bit for each token is not enough
HEAD, DOUBTING = _head(2, 0, 3, 1, 0, 1, 2, 1, 0, 0), _head(0, 1, 3, 0, 0, 0)
# the first tokens of a block depend on its length, and a confidence is known for every token of it
BLOCKS = trace_of(
    "0" * 9,
    confidence=0.0,
    blocks={
        2: {1: HeadDraft(2, (0.9, 0.9)), 4: HeadDraft(0, (0.6, 0.9)), 5: HeadDraft(2, (0.9, 0.4))},
        3: {
            1: HeadDraft(1, (0.9, 0.7, 0.8)),
            3: HeadDraft(3, (0.9, 0.8, 0.3)),
            6: HeadDraft(1, (0.2, 0.9, 0.9)),
        },
    },
)
RIGHT, WRONG = trace_of("1" * 20), trace_of("0" * 9)


@pytest.mark.parametrize(
    ("traced", "run", "wanted"),
    [
        # token 0 comes from the prompt; 1 matches, 2 does not; then 3, 4, 5 match and 6 is the target's own
        (trace_of("1101111111"), {"n_max": 3, "program": Program.TREE, "n_predict": 5}, "3/1 3/3"),
        (HEAD, {"n_max": 1, "n_predict": 9}, "1/0 1/1 1/0 1/1 1/1"),
        (HEAD, {"n_max": 3, "n_predict": 9}, "3/0 3/3 2/2"),
        (HEAD, {"n_max": 8, "n_predict": 9}, "7/0 6/3 2/2"),
        (DOUBTING, {"n_max": 4, "n_predict": 6, "p_min": 0.5}, "2/1 1/0 1/0 0/0"),
        (BLOCKS, {"n_max": 2, "n_predict": 8}, "2/2 2/0 2/2"),
        (BLOCKS, {"n_max": 3, "n_predict": 7}, "3/1 3/3"),
        (BLOCKS, {"n_max": 2, "n_predict": 7, "p_min": 0.5}, "2/2 2/0 1/1"),
        (BLOCKS, {"n_max": 3, "n_predict": 7, "p_min": 0.75}, "1/1 2/2 0/0"),
        # programs end where they do: at 1 + 5 + 5 tokens; at 15, as 10 are not more than 10; at 1 + 5 + 4
        (RIGHT, {"n_max": 4, "program": Program.TREE, "n_predict": 10}, "4/4 4/4"),
        (RIGHT, {"n_max": 4, "program": Program.SIMPLE, "n_predict": 10}, "4/4 4/4 4/4"),
        (RIGHT, {"n_max": 4, "n_predict": 10}, "4/4 3/3"),
        (RIGHT, {"n_max": 4, "program": Program.PLAIN, "n_predict": 10}, "0/0 " * 8 + "0/0"),
        # the simple program looks at what is left only while something is
        (WRONG, {"n_max": 3, "program": Program.SIMPLE, "n_predict": 4}, "3/0 2/0 1/0 3/0 3/0"),
        (WRONG, {"n_max": 3, "program": Program.SIMPLE, "n_predict": 4, "build": 9445}, "3/0 " * 4 + "3/0"),
        # drafts may come to nothing
        (trace_of("1111", confidence=0.3), {"n_max": 2, "p_min": 0.5, "n_predict": 4}, "0/0 0/0 0/0"),
    ],
)
def test_rounds_draft_and_accept_what_programs_do(
    traced: DraftTrace, run: dict[str, Any], wanted: str
) -> None:
    assert " ".join(f"{one.drafted}/{one.accepted}" for one in rounds_of(traced, **run)) == wanted


def test_drafts_of_heads_have_confidences() -> None:
    assert DOUBTING.confidences(1, 4, 4) == (0.9, 0.9, 0.4, 0.4)
    assert DOUBTING.confidences(2, 3, 4) == (0.9,) * 3
    assert BLOCKS.is_heads
    # a trace has only the drafts with which rounds of its sizes and values of p_min begin
    for n_max in (2, 3):
        with pytest.raises(ValueError, match=f"no draft of {n_max} tokens after"):
            rounds_of(replace(WRONG, blocks={2: {1: HeadDraft(1, (0.9, 0.9))}}), n_max=n_max, n_predict=8)


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


@pytest.mark.parametrize("program", GREEDY)
def test_a_text_that_ended_ends_the_run(program: Program) -> None:
    run = traced_run(n_max=2, program=program, n_predict=100)
    found = trace.count(trace.steps(trace_of("11111", ended=True), run))
    first = 0 if program is Program.SIMPLE else 1
    assert found.n_rounds + found.n_accepted in {5 - first, 6 - first}  # the last round's own token is beyond


def test_a_trace_that_is_too_short_is_refused() -> None:
    for match, program in (("1", Program.SIMPLE), ("0", Program.TREE)):
        with pytest.raises(ValueError, match="trace p has 8 tokens"):
            rounds_of(trace_of(match * 8), n_max=2, program=program, n_predict=8)
    run = traced_run(n_max=2, program=Program.SIMPLE, n_predict=8)
    with pytest.raises(ValueError, match="trace p has 8 tokens"):
        trace.expected(trace_of("0" * 8, overlap=(0.5,) * 8), run)
    with pytest.raises(ValueError, match="no overlaps"):
        trace.expected(trace_of("1" * 8), traced_run(n_max=2, n_predict=8))


def test_expectation_is_the_sum_over_all_outcomes() -> None:
    overlap = (0.5, 0.9, 0.2, 0.7, 0.4, 0.8, 1.0, 0.1)
    traced = trace_of("0" * 8, overlap=overlap)
    run, total = traced_run(n_max=3, n_predict=8), Counter[str]()
    for bits in itertools.product((False, True), repeat=8):  # what each place would accept
        chance = math.prod(share if bit else 1 - share for bit, share in zip(bits, overlap, strict=True))
        for name, count in vars(trace.count(trace.steps(trace_of(bits), run))).items():
            total[name] += chance * count
    assert vars(trace.count(trace.expected(traced, run))) == pytest.approx(dict(total))


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
    fewer, more = (rounds_of(trace_of(match), n_max=size, n_predict=30) for size in (n_max + 1, n_max))
    assert len(fewer) <= len(more)


# How sure a trace is of its rounds: compared with every way in which near-ties can fall


P_MIN = 0.8
N_TIED = 8
SPREAD = 0.1
CLOSE, CLEAR = 0.05, 5.0  # nats, far within and far beyond a few times the spread
ODDS = math.log(P_MIN / (1 - P_MIN))
PROGRAMS = (Program.SIMPLE, Program.SERVER)


def _confidence(distance: float) -> float:
    return 1 / (1 + math.exp(-(ODDS + distance)))


def _tied_trace(leads: list[float], distances: list[float]) -> DraftTrace:
    return trace_of(
        [lead > 0 for lead in leads],
        confidence=[*map(_confidence, distances)],
        text_leads=(CLEAR,) * len(leads),
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
    for values in (leads, away):
        for place in [place for place, value in enumerate(values) if abs(value) == CLOSE][4:]:
            values[place] = CLEAR  # 16 ways are enough
    traced = _tied_trace(leads, away)
    asked: dict[str, Any] = {"n_max": n_max, "program": program, "n_predict": N_TIED, "p_min": p_min}
    known = trace.certainty(traced, traced_run(**asked))
    runs = [rounds_of(way, **asked) for way in _ways(traced)]
    counts = {len(run) for run in runs}
    assert (known.fewest, known.most) == (min(counts), max(counts))
    beginnings = {tuple(one.accepted for one in run[: known.sure]) for run in runs}
    assert len(beginnings) == 1
    assert known.is_sure == (len({tuple(one.accepted for one in run) for run in runs}) == 1)


TIED = _tied_trace([CLEAR] * 12, [CLEAR] * 12)


def test_a_text_that_may_change_is_unsure_from_there_on() -> None:
    traced = replace(TIED, text_leads=(*[CLEAR] * 5, CLOSE, *[CLEAR] * 6))
    known = trace.certainty(traced, traced_run(n_max=1, n_predict=N_TIED))
    assert known == trace.Certainty(rounds=4, sure=2, fewest=4, most=4, keeps_text=False)
    assert (trace.first_text_tie(traced), trace.first_text_tie(TIED)) == (5, math.inf)
    without_spread = replace(TIED, spread=None)
    assert trace.certainty(without_spread, traced_run(n_max=1, n_predict=N_TIED)) is None


def test_behind_a_heads_miss_that_is_a_near_tie_anything_may_follow() -> None:
    drafts = (HeadDraft(1, (1.0, 1.0), (CLEAR, -CLOSE)),) * 12
    known = trace.certainty(replace(TIED, drafts=drafts, leads=None), traced_run(n_max=3, n_predict=N_TIED))
    assert (known.fewest, known.rounds, known.most, known.sure) == (2, 4, 4, 0)


@pytest.mark.parametrize(("program", "accepted", "sure"), [(Program.SERVER, 0, 7), (Program.SIMPLE, 1, 5)])
def test_a_server_begins_from_another_requests_state(program: Program, accepted: int, sure: int) -> None:
    right, wrong = HeadDraft(1, (1.0, 1.0), (CLEAR, CLEAR)), HeadDraft(0, (1.0,), (-CLEAR,))
    traced = replace(TIED, drafts=(right,) * 12, leads=None, served_drafts=(wrong,) * 12)
    run = traced_run(n_max=1, program=program, n_predict=N_TIED)
    taken, known = trace.steps(traced, run), trace.certainty(traced, run)
    assert taken[0].accepted == accepted
    assert (known.rounds, known.sure) == (len(taken), sure)
