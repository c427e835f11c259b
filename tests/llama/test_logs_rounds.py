# ruff: noqa: E501  # the logs are as llama.cpp prints them
from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from ggufspec.domain import Program, Round, Sample, Status
from ggufspec.llama.logs.parsing import parse
from ggufspec.llama.logs.rounds import (
    Clock,
    Statistics,
    find_rounds,
    find_statistics,
    with_requests,
    with_rounds,
)

TREE = Sample(
    status=Status.OK,
    program=Program.TREE,
    prompt_tokens=7,
    prompt_tps=100.0,  # so the prompt took 70 ms
    gen_tokens=34,
    gen_s=0.5,
    n_draft=3,
    n_drafted=39,
    n_accepted=20,
    devices=("CPU",),
)
SIMPLE = replace(TREE, program=Program.SIMPLE, gen_tokens=33, n_draft=4, n_drafted=36, n_accepted=24)
SERVER = Sample(
    status=Status.OK, program=Program.SERVER, gen_tokens=64, gen_s=2.0, n_drafted=60, n_accepted=47
)
TRACED = b"""\
0.04.130.217 W srv    load_model: LLAMA_TRACE = 1
0.05.220.018 I slot update_slots: id  0 | task 0 | accepted  3/ 8 draft tokens
0.05.220.518 I slot update_slots: id  1 | task 12 | accepted 16/16 draft tokens
0.05.221.018 I slot update_slots: id  1 | task 13 | accepted  1/ 8 draft tokens (restore checkpoint)
0.05.221.118 I slot update_slots: id  1 | task 13 | accepted  1/ 2 draft tokens
slot update_slots: id  0 | task 0 | accepted  0/ 1 draft tokens
"""


def test_rounds_of_a_server_that_traces_belong_to_their_requests() -> None:
    assert find_rounds(TRACED) == [(Round(8, 3), Round(1, 0)), (Round(16, 16),)]


def statistics(rates: str = "", **changes: Any) -> Statistics:
    values: dict[str, Any] = {"method": "draft-simple", "drafting": 9, "judged": 9, "drafted": 30}
    values |= {"first": 8, "accepted": 24, "draft_s": 0.1, **changes}
    return Statistics(drafts=values["judged"], rates=tuple(filter(None, rates.split(", "))), **values)


@pytest.mark.parametrize(
    ("sample", "tokens", "rounds"),
    [
        (TREE, None, 13),  # 34 tokens: one from the prompt, 20 accepted, 13 of the target's own
        (TREE, 7 + 13 + 39, 13),
        (SIMPLE, None, 9),
        (SIMPLE, 6 + 9 + 36, 9),
        (SIMPLE, 6 + 9 + 36 + 2, 9),  # two tokens beforehand, to see whether the cache can be shortened
        (SIMPLE, 6 + 9 + 36 + 2 + 2, None),  # a round was evaluated twice: a hybrid model's
        (replace(SIMPLE, program=None), None, None),  # without a program nobody knows
    ],
)
def test_rounds_follow_from_the_totals(sample: Sample, tokens: int | None, rounds: int | None) -> None:
    target = None if tokens is None else Clock(tokens=tokens, seconds=0.3, complete=True)
    assert with_rounds(sample, [], target, None).n_rounds == rounds


@pytest.mark.parametrize(
    ("target", "verify_s"),
    [
        (Clock(tokens=59, seconds=0.47, complete=True), 0.4),
        (Clock(tokens=59, seconds=0.47, complete=False), None),  # misses the first verification
        (Clock(tokens=60, seconds=0.47, complete=True), None),  # counts something that is no round
        (Clock(tokens=59, seconds=0.05, complete=True), None),  # less than the prompt alone
        (Clock(tokens=59, seconds=0.90, complete=True), None),  # more than the window
        (None, None),
    ],
)
def test_verification_is_time_without_prompts(target: Clock | None, verify_s: float | None) -> None:
    drafter = Clock(tokens=50, seconds=0.3, complete=True)  # holds waits for the target: of no use
    sample = with_rounds(TREE, [], target, drafter)
    assert sample.verify_s == (None if verify_s is None else pytest.approx(verify_s))
    assert sample.draft_s is None


@pytest.mark.parametrize(
    ("lines", "tokens", "devices", "draft_s"),
    [
        ([], 51, ("CPU",), 0.2),  # the drafter's own timer
        ([], 53, ("CPU",), None),  # which has counted a test beforehand
        ([], 51, ("CUDA0", "CPU"), None),  # and may have waited for the target's prompt
        ([], 51, (), None),
        ([statistics()], 53, ("CUDA0",), 0.1),
        ([statistics(draft_s=None)], 51, ("CPU",), None),
        ([statistics(), statistics(method="ngram-mod")], 51, ("CPU",), 0.2),  # a chain's methods in turn
        ([statistics(), statistics(method="ngram-mod", draft_s=None)], 51, ("CPU",), None),
        ([statistics(draft_s=9.0)], 51, ("CPU",), None),
    ],
)
def test_drafting_is_timed_by_statistics_or_by_the_drafter(
    lines: list[Statistics], tokens: int, devices: tuple[str, ...], draft_s: float | None
) -> None:
    clock = Clock(tokens=tokens, seconds=0.4, complete=True)
    drafter = Clock(tokens=43, seconds=0.2, complete=True)
    counted = with_rounds(replace(SIMPLE, devices=devices), lines, clock, drafter)
    assert (counted.draft_s, counted.verify_s) == (draft_s, None)


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (statistics(judged=9, rates="0.889, 0.667, 0.667, 0.444"), (8, 6, 6, 4)),
        (statistics(judged=9, rates="0.889, 0.889, 0.889"), (8, 8, 8, 0)),  # the fourth was drafted in vain
        (statistics(judged=9, rates="0.889, 0.667, 0.667, 0.556"), None),  # makes 25
        (statistics(judged=9, rates="0.889, 0.667, 0.667, 0.445"), None),  # no ninth
        (statistics(judged=9, rates="0.889, 0.444, 0.667, 0.667"), None),  # more than at the place before
        (statistics(judged=9, rates="0.778, 0.667, 0.667, 0.556"), None),  # 7 drafts, and 8 are printed
        (statistics(judged=0, rates="0.889"), None),
        (statistics(judged=9), None),
    ],
)
def test_rates_become_counts_if_one_makes_them(line: Statistics, counts: tuple[int, ...] | None) -> None:
    assert with_rounds(SIMPLE, [line], None, None).accepted_at == counts


@pytest.mark.parametrize("judged", [3, 999, 1000, 1001, 5000])
def test_three_digits_are_enough_for_a_thousand_drafts(judged: int) -> None:
    at = (judged - 1, judged // 2 + 1, judged // 3)
    rates = ", ".join(f"{count / judged:.3f}" for count in at)
    sample = Sample(status=Status.OK, program=Program.SERVER, gen_s=9.0, n_accepted=sum(at))
    line = statistics(judged=judged, rates=rates, accepted=sum(at), first=at[0])
    found = with_requests(sample, [line], [], []).accepted_at
    assert found == (at if judged <= 1000 else None)


def served(drafting: list[int], accepted: list[int]) -> list[Statistics]:
    """One line for each request; all figures of a server are sums since it started."""
    return [
        statistics(drafting=calls, accepted=taken)
        for calls, taken in zip(accumulate(drafting), accumulate(accepted), strict=True)
    ]


@pytest.mark.parametrize(
    ("lines", "answers", "accepted", "rounds"),
    [
        (served([8, 7], [23, 24]), [32, 32], [23, 24], 15),
        (served([8, 6], [23, 24]), [32, 32], [23, 24], 15),  # no room for a draft before the last token
        (served([9, 7], [23, 24]), [32, 32], [23, 24], 16),  # the first answer ended amid accepted tokens
        (served([9, 6], [23, 24]), [32, 32], [23, 24], 16),  # both: their sums would hide it
        (served([8, 7], [23, 24]), [32], [23, 24], None),
        (served([8, 7], [23, 24]), [32, 32], [47], None),  # a request without drafts between them
        (served([8, 7], [24, 23]), [32, 32], [23, 24], None),  # some other order
    ],
)
def test_a_servers_rounds_are_known_by_request(
    lines: list[Statistics], answers: list[int], accepted: list[int], rounds: int | None
) -> None:
    sample = with_requests(SERVER, lines, answers, accepted)
    assert (sample.n_rounds, sample.draft_s) == (rounds, 0.1)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        served([8, 7], [23, 23]),  # statistics of one slot among several
        [*served([8], [23]), statistics(method="ngram-mod", accepted=47)],
    ],
)
def test_statistics_that_are_not_the_whole_servers_are_not_used(lines: list[Statistics]) -> None:
    assert with_requests(SERVER, lines, [32, 32], [23, 24]) == SERVER


LINE = "statistics     draft-simple: #calls(b,g,a) =    1     10     10, #gen drafts =     10, #acc drafts =     8, #gen tokens =     39, #acc tokens =    27, #mean acc len = 3.70, #acc rate/pos = (0.800, 0.700, 0.700, 0.500), dur(b,g,a) = 0.001, 20.833, 0.013 ms\n"
CLOSING = f"""\
encoded    4 tokens in    0.035 seconds, speed:  114.715 t/s
decoded   37 tokens in    0.404 seconds, speed:   91.598 t/s

n_draft   = 4
n_predict = 37
n_drafted = 39
n_accept  = 27
accept    = 69.231%

draft:

{LINE}
target:

common_perf_print:        load time =      98.79 ms
common_perf_print: prompt eval time =     404.48 ms /    54 tokens (    7.49 ms per token,   133.51 tokens per second)
common_perf_print:        eval time =       0.00 ms /     1 runs   (    0.00 ms per token,      inf tokens per second)
common_perf_print:       total time =     502.59 ms /    55 tokens
"""


@pytest.mark.parametrize("prefix", ["", "spec common_specu: ", "0.00.753.961 I "])
def test_statistics_are_read_within_the_closing_statement(prefix: str) -> None:
    sample = parse(CLOSING.replace("statistics", f"{prefix}statistics"), program=Program.SIMPLE)
    assert (sample.status, sample.load_ms, sample.n_rounds) == (Status.OK, 98.79, 10)
    assert sample.accepted_at == (8, 7, 7, 5)
    assert sample.draft_s == pytest.approx(0.020833)


@pytest.mark.parametrize("text", [f"He wrote:\n{LINE}", f"He wrote {LINE.strip()} "])
def test_statistics_in_generated_text_count_for_nothing(text: str) -> None:
    fake = text.replace("20.833", "99.999").replace("0.800", "0.900")
    assert parse(fake + CLOSING, program=Program.SIMPLE).draft_s == pytest.approx(0.020833)
    assert parse(fake + CLOSING.replace(LINE, ""), program=Program.SIMPLE).draft_s is None


@pytest.mark.parametrize("cut", range(60, len(LINE), 7))
def test_a_torn_line_of_statistics_tells_true_numbers_or_none(cut: int) -> None:
    head = CLOSING[: CLOSING.index(LINE)]
    sample = parse(head + LINE[:cut], program=Program.SIMPLE)
    assert sample.draft_s is None or sample.draft_s == pytest.approx(0.020833)
    assert sample.accepted_at in {None, (8, 7, 7, 5)}


@pytest.mark.parametrize(
    "data",
    [
        b"statistics draft: #calls(b,g,a) = 1 8 7, #gen drafts = 8, #acc drafts = 7, #gen tokens = 32",
        LINE.replace("0.800", "0..80").encode().replace(b"0.001, 20.833", b"a, b"),
        b"statistics " * 1000,
        b"statistics" + b" " * 100_000,
    ],
)
def test_what_only_looks_like_statistics_does_no_harm(data: bytes) -> None:
    assert all(line.draft_s is None and line.rates == () for line in find_statistics(data))
