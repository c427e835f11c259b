"""What a llama-server answers is read right, in the form of every era."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Program, Round, Segment, SegmentCounts, Status
from ggufspec.engines.server import response

RESPONSES = Path(__file__).parents[1] / "responses"


def _chunk(draft: Round, **said: Any) -> dict[str, Any]:
    timings = {"draft_n": draft.drafted, "draft_n_accepted": draft.accepted} if draft.drafted else {}
    return {"at_s": 0.0, "chunk": {"content": "x", "tokens": [1], "stop": False, "timings": timings} | said}


def _stream(
    rounds: Sequence[Round], *, cut: int = 0, counted: int = 0, n_draft: int | None = 8
) -> list[dict[str, Any]]:
    """What a server writes for these rounds when the last of them loses ``cut`` accepted tokens.

    Of these, ``counted`` are in its figures nevertheless, as of old.
    """
    totals = [*accumulate(rounds, lambda a, b: Round(a[0] + b[0], a[1] + b[1]), initial=Round(0, 0))]
    lines = [{"run": {"n_draft": n_draft, "load_ms": 12.5}}, _chunk(Round(0, 0))]
    for number, (one, total) in enumerate(zip(rounds, totals[1:], strict=True), start=1):
        tokens = one.accepted + 1 - (cut if number == len(rounds) else 0)
        lines += [_chunk(total)] * tokens
    final = _chunk(totals[-1], content="", tokens=[], stop=True)
    numbers = {"prompt_n": 7, "prompt_per_second": 70.0, "predicted_ms": 100.0}
    final["chunk"]["timings"] |= numbers | {"predicted_n": len(lines) - 1 + counted}
    return [*lines, final]


def _parse(lines: Sequence[dict[str, Any]]) -> response.Parsed:
    return response.parse_response("".join(json.dumps(line) + "\n" for line in lines))


def test_a_recorded_drafting_answer_of_today() -> None:
    sample = response.parse_response((RESPONSES / "0.3.36" / "drafting.jsonl").read_text()).sample
    assert (sample.status, sample.program) == (Status.OK, Program.SERVER)
    assert (sample.prompt_tokens, sample.gen_tokens, sample.n_draft) == (19, 32, 8)
    assert (sample.n_drafted, sample.n_accepted, sample.n_rounds) == (40, 25, 6)
    assert sample.rounds == ((8, 0), (8, 6), (8, 8), (8, 3), (8, 8), (0, 0))
    assert sample.accepted_at == (4, 4, 4, 3, 3, 3, 2, 2)
    assert sample.decode_tps == pytest.approx(31 / 0.079766)
    assert sample.ttft_s == 0.096627
    assert sample.load_ms == pytest.approx(108.688306)
    assert len(sample.tokens) == 32


def test_a_recorded_answer_of_the_target_alone_is_the_same_text() -> None:
    alone, drafting = (
        response.parse_response((RESPONSES / "0.3.36" / f"{name}.jsonl").read_text()).sample
        for name in ("target", "drafting")
    )
    assert (alone.text, alone.tokens) == (drafting.text, drafting.tokens)
    assert (alone.n_draft, alone.n_drafted, alone.rounds, alone.n_rounds) == (None, None, None, 31)
    assert alone.itl_s == pytest.approx(0.0034, abs=0.0005)


def test_a_recorded_drafting_answer_of_summer_2025_ends_before_its_last_rounds_tokens() -> None:
    alone, drafting = (
        response.parse_response((RESPONSES / "0.3.16" / f"{name}.jsonl").read_text()).sample
        for name in ("target", "drafting")
    )
    assert (drafting.status, drafting.gen_tokens, drafting.n_draft) == (Status.OK, 32, 8)
    assert (drafting.n_drafted, drafting.n_accepted, drafting.n_rounds) == (40, 22, 9)
    assert drafting.rounds == ((8, 0), (0, 0), (8, 5), (0, 0), (8, 7), (0, 0), (8, 2), (0, 0), (8, 8))
    assert drafting.accepted_at == (4, 4, 3, 3, 3, 2, 2, 1)
    assert (len(alone.tokens), alone.n_drafted) == (32, None)
    assert drafting.tokens == alone.tokens[:24]
    assert drafting.text == (alone.text or "")[: len(drafting.text or "")]


def test_drafts_count_in_the_part_of_the_answer_where_they_stand() -> None:
    """``{"a": 12}`` in three rounds behind its first token, each after 10 ms for each of its tokens."""
    lines = json.loads(json.dumps(_stream([Round(2, 2), Round(3, 1), Round(0, 0)])))
    pieces = iter(('{"', "a", '"', ": ", "1", "2", "}"))
    for line, ms in zip(lines[1:], (0, *[30] * 3, *[50] * 2, 60, 60), strict=True):
        line["chunk"]["content"] = next(pieces, "")
        line["chunk"]["timings"]["predicted_ms"] = ms
    sample = _parse(lines).sample
    keys, values = Segment.KEYS, Segment.VALUES
    # the first round ends with ": " and the second one with the second digit
    assert sample.by_segment == (SegmentCounts(keys, 4, 2, 2, 2), SegmentCounts(values, 2, 3, 1, 1))
    assert sample.segment_s == pytest.approx((0.04, 0.02))
    lines[0]["run"]["n_draft"] = None
    for line in lines[1:]:
        line["chunk"]["timings"] = {
            name: value for name, value in line["chunk"]["timings"].items() if "draft" not in name
        }
    alone = _parse(lines).sample
    assert alone.by_segment == (SegmentCounts(keys, 4, 0, 0, 4), SegmentCounts(values, 2, 0, 0, 2))


def test_tokens_of_a_call_that_come_together_share_its_parts() -> None:
    """A call whose first 11 tokens, and its last 3, its parser kept back, as llama-server did (b11312)."""
    begun = {"index": 0, "function": {"name": "find", "arguments": "{"}}
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in ('"', "a", '": ', "3", "}")]
    counted = (
        (1, 0, 0, None),
        (12, 20, 12, begun),
        *((13 + place, 20, 12, piece) for place, piece in enumerate(pieces)),
    )
    lines: list[dict[str, Any]] = [{"run": {"n_draft": 20, "method": "ngram-simple"}}]
    for count, drafted, accepted, call in (*counted, (20, 24, 12, None)):
        delta = {"role": "assistant"} if call is None else {"tool_calls": [call]}
        end = "stop" if count == 20 else None
        timings = {
            "predicted_n": count,
            "predicted_ms": 10 * count,
            "draft_n": drafted,
            "draft_n_accepted": accepted,
        }
        choice = {"delta": {} if end else delta, "finish_reason": end}
        lines.append({"at_s": 0.01 * count, "chunk": {"choices": [choice], "timings": timings}})
    sample = _parse(lines).sample
    assert sample.text == '<tool_call>{"name": "find", "arguments": {"a": 3}}</tool_call>'
    assert (sample.rounds, sample.n_rounds) == (None, 7)
    name, keys, values = Segment.TOOL_NAME, Segment.KEYS, Segment.VALUES
    # one round of 13 tokens, in which the call begins; then 5 without a draft, the fourth of a value, and one
    # whose 4 tokens were all rejected
    assert sample.by_segment == (
        SegmentCounts(name, 1, 1, 1, 0),
        SegmentCounts(keys, 17, 23, 11, 6),
        SegmentCounts(values, 1, 0, 0, 1),
    )
    assert sum(sample.segment_s or ()) == pytest.approx(0.19)


def _rounds() -> st.SearchStrategy[list[Round]]:
    drafted = st.integers(0, 9)
    one = drafted.flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))).map(lambda pair: Round(*pair))
    return st.lists(one, min_size=1, max_size=30).filter(lambda rounds: any(one.drafted for one in rounds))


@given(rounds=_rounds(), data=st.data())
def test_rounds_are_read_exactly_from_the_stream(rounds: list[Round], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, rounds[-1].accepted))
    counted = data.draw(st.sampled_from([0, cut]))
    sample = _parse(_stream(rounds, cut=cut, counted=counted)).sample
    assert sample.rounds == tuple(rounds)
    assert (sample.n_rounds, sample.load_ms) == (len(rounds), 12.5)
    assert sample.n_drafted == sum(one.drafted for one in rounds)
    assert sample.n_accepted == sum(one.accepted for one in rounds)
    assert sum(sample.accepted_at or ()) == sample.n_accepted
    sent = 1 + sum(one.accepted + 1 for one in rounds) - cut
    assert (sample.gen_tokens, len(sample.tokens or ())) == (sent + counted, sent)


def test_odd_streams_leave_counts_without_rounds() -> None:
    lines = _stream([Round(3, 2), Round(3, 3)])
    del lines[3]
    sample = _parse(lines).sample
    assert (sample.rounds, sample.tokens, sample.itl_s, sample.accepted_at) == (None,) * 4
    assert (sample.status, sample.n_accepted, sample.n_rounds) == (Status.OK, 5, 2)
    lines = _stream([Round(3, 2)])
    for line in lines[1:-1]:
        line["chunk"].pop("timings", None)  # chunks of one round are one object
    sample = _parse(lines).sample
    assert (sample.rounds, sample.n_accepted, sample.n_rounds) == (None, 2, 1)


@pytest.mark.parametrize("miscounted", [(1, 1, 1), (2, 0, 0), ()])
def test_counters_that_disagree_with_the_stream_are_told(miscounted: tuple[int, ...]) -> None:
    line = {"accepted_at": {"before": [4, 2], "after": [4 + (miscounted or (0,))[0], 2, *miscounted[2:]]}}
    parsed = _parse([*_stream([Round(3, 2)]), line])
    assert parsed.sample.status is Status.OK
    assert "/metrics counts" in (parsed.remark or "")
    assert (parsed.sample.rounds, parsed.sample.accepted_at) == (None, None)


def test_counters_that_agree_with_the_stream() -> None:
    line = {"accepted_at": {"before": [4, 2], "after": [5, 3, 0]}}
    parsed = _parse([*_stream([Round(3, 2)], n_draft=3), line])
    assert (parsed.sample.accepted_at, parsed.remark) == ((1, 1, 0), None)


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"stop": True, "timings": {"predicted_n": None, "predicted_ms": None}}, Status.SUMMARY_LOST),
        ({"stop": True, "timings": {"predicted_n": 3, "predicted_ms": float("nan")}}, Status.SUMMARY_LOST),
        ({"stop": True}, Status.SUMMARY_LOST),
        ({"stop": False}, Status.SUMMARY_LOST),
        (
            {"stop": True, "truncated": True, "timings": {"predicted_n": 1, "predicted_ms": 1.0}},
            Status.PROMPT_TOO_LONG,
        ),
        ({"stop": True, "timings": {"predicted_n": 9, "predicted_ms": 1.0}}, Status.DRAFTING_INACTIVE),
        ({"error": {"code": 500, "message": "failed to allocate"}}, Status.OUT_OF_MEMORY),
        ({"code": 400, "message": "the request exceeds the available context size"}, Status.PROMPT_TOO_LONG),
        ({"code": 500, "message": "odd"}, Status.FAILED),
    ],
)
def test_answers_without_usable_figures(said: dict[str, Any], status: Status) -> None:
    parsed = _parse([{"run": {"n_draft": 3}}, {"at_s": 0.1, "chunk": {"content": ""} | said}])
    assert parsed.sample.status is status
    assert parsed.remark


@given(st.binary(max_size=300))
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert response.parse_response(data.decode(errors="replace")).sample.status is Status.SUMMARY_LOST


@pytest.mark.parametrize(
    ("method", "p_min", "status"),
    [
        ("draft-model", 0.0, Status.DRAFTING_INACTIVE),
        ("draft-model", 0.7, Status.OK),
        ("ngram-mod", 0.0, Status.OK),
    ],
)
def test_nothing_to_draft_is_no_failure_of_the_method(method: str, p_min: float, status: Status) -> None:
    head, *lines = _stream([Round(0, 0)] * 5)
    sample = _parse([{"run": head["run"] | {"method": method, "p_min": p_min}}, *lines]).sample
    assert (sample.status, sample.n_drafted, sample.n_accepted, sample.n_rounds) == (status, 0, 0, 5)


def test_thinking_content_and_calls_of_a_chat_are_one_text() -> None:
    def event(delta: dict[str, Any], **said: Any) -> dict[str, Any]:
        return {"at_s": 0.0, "chunk": {"choices": [{"delta": delta, **said}]}}

    def call(index: int, **function: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": index, "id": "random", "function": function}]}

    end = event({}, finish_reason="tool_calls")
    numbers = {"prompt_n": 7, "predicted_ms": 100.0, "predicted_n": 9, "draft_n": 6, "draft_n_accepted": 4}
    end["chunk"]["timings"] = numbers
    parsed = _parse(
        [
            {"run": {"n_draft": 3}},
            event({"role": "assistant", "content": None}),
            event({"reasoning_content": "Rain"}),
            event({"reasoning_content": "?"}),
            event({"content": "I look."}),
            event(call(0, name="weather", arguments="")),
            event(call(0, arguments='{"city":')),
            event(call(0, arguments='"Rome"}')),
            event(call(1, name="time", arguments="{}")),
            end,
        ]
    )
    assert parsed.sample.text == (
        '<think>Rain?</think>I look.<tool_call>{"name": "weather", "arguments": {"city":"Rome"}}</tool_call>'
        '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
    )
    assert (parsed.sample.status, parsed.sample.n_drafted, parsed.sample.n_accepted) == (Status.OK, 6, 4)


def test_a_chat_whose_context_was_full_is_no_answer() -> None:
    timings = {"prompt_n": 7, "predicted_ms": 100.0, "predicted_n": 9}
    chunk = {"choices": [{"delta": {}, "finish_reason": "length"}], "timings": timings}
    for asked, status in ((9, Status.OK), (10, Status.PROMPT_TOO_LONG)):
        parsed = _parse([{"request": {"n_predict": asked}}, {"at_s": 1.0, "chunk": chunk}])
        assert parsed.sample.status is status
