"""Figures that cannot be true are refused: whoever reports them, and however they contradict the rest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Drafting, Method, Program, Role, Status
from ggufspec.engines import plausibility
from ggufspec.engines.server import response
from tests.support import values

RECORDED = Path(__file__).parents[1] / "responses" / "0.3.16" / "target.jsonl"


def _judged(role: Role = Role.DRAFTING, *, n_predict: int = 100, **changed: Any) -> Status:
    run = values.run(role, draft=3 if role is Role.DRAFTING else None)
    spec = replace(run.spec, n_predict=n_predict)
    verdict = plausibility.judge(spec, replace(run.sample, **changed), wall_s=2.4)
    return Status.OK if verdict is None else verdict[0]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, Status.OK),
        ({"n_rounds": 40}, Status.OK),
        ({"gen_tokens": 105}, Status.OK),  # the last round of three drafts went beyond 100
        ({"n_rounds": 30, "n_draft": 3}, Status.IMPLAUSIBLE),  # 100 tokens in 30 rounds of three
        ({"n_accepted": 101}, Status.IMPLAUSIBLE),
        ({"gen_s": 60.0}, Status.IMPLAUSIBLE),  # the program ran for 2.4 s
        ({"draft_s": 1.5, "verify_s": 1.5}, Status.IMPLAUSIBLE),  # of 2 s
        ({"gen_tokens": 106}, Status.IMPLAUSIBLE),
        ({"gen_tokens": 10**9}, Status.IMPLAUSIBLE),
        ({"gen_s": 1e-303}, Status.IMPLAUSIBLE),
        ({"gen_s": 0.0}, Status.IMPLAUSIBLE),
        ({"prompt_tps": 1e300}, Status.IMPLAUSIBLE),
        ({"text": ""}, Status.NO_TEXT),
        ({"gen_tokens": 1}, Status.NO_TEXT),
        ({"text": None}, Status.OK),  # left out of a published bench
    ],
)
def test_a_run_counts_only_if_its_figures_can_be_true(changed: dict[str, Any], status: Status) -> None:
    assert _judged(**changed) is status


def test_what_does_not_draft_stops_at_what_was_asked() -> None:
    assert _judged(Role.TARGET, gen_tokens=100) is Status.OK
    assert _judged(Role.TARGET, gen_tokens=101) is Status.IMPLAUSIBLE
    assert _judged(program=Program.SERVER, gen_tokens=101) is Status.IMPLAUSIBLE


def test_the_longest_draft_of_a_chain_is_spare() -> None:
    chain = Drafting(n_max=3, method=Method.DRAFT_MODEL, first=(Method.NGRAM_MOD,))
    run = values.run(Role.DRAFTING, draft=3)
    sample = replace(run.sample, gen_tokens=32 + 40, n_drafted=None)
    assert plausibility.judge(run.spec, sample, wall_s=2.4) is not None
    assert plausibility.judge(replace(run.spec, drafting=chain), sample, wall_s=2.4) is None


def _contradiction(gaps: Sequence[float], *, gen_s: float, tokens: int | None = None) -> str | None:
    arrivals = [*accumulate(gaps, initial=0.1)]
    return plausibility.find_contradiction(
        tokens=len(arrivals) if tokens is None else tokens,
        asked=None,
        gen_s=gen_s,
        arrivals=arrivals,
        end_s=arrivals[-1],
    )


def test_a_server_is_believed_whatever_the_clients_machine_does() -> None:
    assert _contradiction([0.01] * 99, gen_s=0.99) is None
    assert _contradiction([0.0] * 98 + [0.99], gen_s=0.99) is None  # all came at once, behind a pause
    assert _contradiction([0.01] * 50 + [5.0] + [0.01] * 48, gen_s=0.98) is None  # the client slept
    assert _contradiction([0.00005] * 4000, gen_s=0.02) is None  # the client reads no faster


@given(
    sent=st.lists(st.floats(0.001, 0.1), min_size=2, max_size=60),
    busy_from=st.floats(0, 3),
    busy_s=st.floats(0, 10),
)
def test_no_pause_of_the_client_makes_a_truthful_server_a_liar(
    sent: list[float], busy_from: float, busy_s: float
) -> None:
    times = [*accumulate(sent, initial=0.5)]
    arrivals = [busy_from + busy_s if busy_from < at < busy_from + busy_s else at for at in times]
    assert (
        plausibility.find_contradiction(
            tokens=len(times),
            asked=len(times),
            gen_s=times[-1] - times[0],
            arrivals=arrivals,
            end_s=arrivals[-1],
        )
        is None
    )


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_a_server_whose_clock_is_tenfold_off_is_not(factor: float) -> None:
    assert _contradiction([0.01] * 99, gen_s=0.99 * factor) is not None
    assert _contradiction([0.03] * 15, gen_s=0.45 * factor) is not None


def _record(change: Any) -> response.Parsed:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return response.parse_response("".join(json.dumps(line) + "\n" for line in change(lines)))


def _twice(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    is_piece = [bool(line.get("chunk", {}).get("content")) for line in lines]
    return [line for line, piece in zip(lines, is_piece, strict=True) for _ in range(1 + piece)]


def _with_timings(**changed: Any) -> Any:
    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = next(line for line in reversed(lines) if "chunk" in line)
        last["chunk"]["timings"] |= changed
        return lines

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_twice, "64 pieces of text came"),
        (_with_timings(predicted_n=10**9), "1,000,000,000 tokens, but 32 were asked for"),
        (_with_timings(predicted_ms=1e-300), "decoded for 0.00 s"),
        (_with_timings(predicted_ms=1e6), "decoded for 16 min 40 s"),
    ],
)
def test_a_servers_answer_that_contradicts_itself_is_implausible(change: Any, words: str) -> None:
    assert _record(list).sample.status is Status.OK
    parsed = _record(change)
    assert parsed.sample.status is Status.IMPLAUSIBLE
    assert words in parsed.remark
