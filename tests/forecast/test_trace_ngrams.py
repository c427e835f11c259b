"""Drafts from the text so far: against counts of real programs, and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ggufspec.domain import Method, Program, Round
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace
from ggufspec.forecast.trace.ngrams import TokenCounts
from tests.support.walks import RECORDED as TRACES, trace_of, traced_run

RECORDED = sorted((TRACES / "ngrams").glob("*.json"))
BEGIN = tuple(range(100, 130))


def _trace(prompt: tuple[int, ...], tokens: tuple[int, ...], **more: Any) -> DraftTrace:
    return trace_of("0" * len(tokens), tokens=tokens, prompt_tokens=prompt, **more)


def _rounds(
    traced: DraftTrace, method: Method, n_max: int, *, n_predict: int, program: Program = Program.SERVER
) -> list[Round]:
    steps = trace.ngram_steps(
        traced, traced_run(method=method, n_max=n_max, program=program, n_predict=n_predict)
    )
    assert {(step.chance, step.proposals) for step in steps} == {(1.0, 0)}
    return [Round(step.drafted, int(step.accepted)) for step in steps]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_count_of_real_programs_is_met(path: Path) -> None:
    said = json.loads(path.read_text(encoding="utf-8"))
    traced = _trace(tuple(said["prompt_tokens"]), tuple(said["tokens"]))
    runs = [dict(zip(said["columns"], row, strict=True)) for row in said["runs"]]
    assert {(run["program"], Method(run["method"])) for run in runs} == {
        (program, method) for program in ("speculative-simple", "server") for method in trace.EMULATED
    }
    for run in runs:
        found = trace.count(
            trace.ngram_steps(
                traced,
                traced_run(
                    method=Method(run["method"]),
                    n_max=run["n_max"],
                    program=Program(run["program"]),
                    n_predict=said["n_predict"],
                ),
            )
        )
        counts = (found.n_drafted, found.n_accepted, found.n_rounds)
        assert counts == (run["n_drafted"], run["n_accepted"], run["n_rounds"]), run


def test_the_recorded_runs_drafted_and_were_partly_wrong() -> None:
    drafted = {
        row[1]: (row[3], row[4])
        for path in RECORDED
        for row in json.loads(path.read_text(encoding="utf-8"))["runs"]
        if row[4] > 50
    }
    assert set(drafted) == {method.value for method in trace.EMULATED}
    assert all(accepted < count for count, accepted in drafted.values())


def test_a_text_that_comes_again_is_drafted_from_where_it_stood() -> None:
    traced = _trace((1, *BEGIN, 2, 3, *BEGIN[:12]), (*BEGIN[12:], 2, 7, 8, 9))
    # 12 tokens stood before: after the prompt's own token, the 16 that followed come, of which all are right
    assert _rounds(traced, Method.NGRAM_SIMPLE, 16, n_predict=18) == [Round(16, 16)]
    assert _rounds(traced, Method.NGRAM_MAP_K, 4, n_predict=16) == [Round(4, 4)] * 3
    # what is left to write limits the last draft of a server, and of the simple program
    assert _rounds(traced, Method.NGRAM_SIMPLE, 16, n_predict=12) == [Round(10, 10)]
    simple = _rounds(traced, Method.NGRAM_SIMPLE, 16, n_predict=12, program=Program.SIMPLE)
    assert simple == [Round(11, 11), Round(16, 7)]  # it goes beyond what was asked for


def test_a_key_whose_draft_was_wrong_drafts_nothing_again() -> None:
    other = tuple(range(50, 90))
    text = (*BEGIN, *other, *BEGIN, 1, *other[5:25], *BEGIN, *other)
    traced = _trace((0, *text[:100]), text[100:])
    simple = _rounds(traced, Method.NGRAM_SIMPLE, 12, n_predict=55)
    learning = _rounds(traced, Method.NGRAM_MAP_K, 12, n_predict=55)
    assert sum(one.drafted for one in learning) < sum(one.drafted for one in simple)


def test_the_shortest_drafts_of_a_method_decide_where_it_drafts_at_all() -> None:
    traced = _trace((1, *BEGIN, 2, 3, *BEGIN[:12]), BEGIN[12:])
    assert set(_rounds(traced, Method.NGRAM_SIMPLE, 11, n_predict=10)) == {Round(0, 0)}
    assert trace.draft_sizes(Method.NGRAM_SIMPLE, (8, 11, 12, 48)) == (12, 48)
    assert trace.draft_sizes(Method.NGRAM_CACHE, (4, 8, 16)) == (8,)
    assert trace.draft_sizes(Method.NGRAM_MOD, (4,)) == (4,)
    assert {method: trace.draft_sizes(method) for method in Method} == {
        Method.DRAFT_MODEL: (3,),
        Method.DRAFT_MTP: (3,),
        Method.DRAFT_EAGLE3: (3,),
        Method.DRAFT_DFLASH: (3,),
        Method.DRAFT_DSPARK: (3,),
        Method.NGRAM_SIMPLE: (48,),
        Method.NGRAM_MAP_K: (48,),
        Method.NGRAM_MAP_K4V: (48,),
        Method.NGRAM_MOD: (64,),
        Method.NGRAM_CACHE: (8,),
        Method.SUFFIX: (16,),
    }


def test_counts_that_tie_are_taken_in_the_order_of_a_hash_map() -> None:
    """As GCC's library prints them: 14 and 1 share a bucket of 13, and the 14th token makes 29 buckets."""
    counts = TokenCounts()
    for token in (1, 5, 14):
        counts.add(token)
    assert counts.first_of_most() == (5, 1)  # 5 was first of all; 14 went before 1 in their bucket
    assert counts._order == [5, 14, 1]
    for token in range(20, 31):
        counts.add(token)
    assert counts._order == [30, 1, 14, 27, 5, 20, 21, 22, 23, 24, 25, 26, 28, 29]
    counts.add(21)
    assert (counts.first_of_most(), counts.total) == ((21, 2), 15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": Method.DRAFT_MODEL}, "drafts with a model"),
        ({"method": Method.SUFFIX}, "is not emulated"),
        ({"program": Program.TREE}, "speculative does not draft by ngram-mod"),
        ({"build": 9464}, "how build 9464 drafts by ngram-mod is not known"),
        ({"method": Method.NGRAM_CACHE}, "drafts up to 8 tokens, never up to 4"),
        ({"trace": _trace((), (1, 2, 3))}, "lacks the tokens of its prompt"),
        ({"n_predict": 20}, "has 10 tokens"),
    ],
)
def test_what_cannot_be_told_is_said(change: dict[str, Any], message: str) -> None:
    whole = _trace((1, 2), tuple(range(10)))
    possible: dict[str, Any] = {
        "method": Method.NGRAM_MOD,
        "n_max": 4,
        "program": Program.SERVER,
        "n_predict": 8,
    }
    assert len(trace.ngram_steps(whole, traced_run(**possible))) == 7
    with pytest.raises(ValueError, match=message):
        trace.ngram_steps(change.pop("trace", whole), traced_run(**possible | change))
