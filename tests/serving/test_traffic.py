"""Several users at once: what they send, what is recorded of each request, and the figures from that."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

import ggufspec
from ggufspec import paths, proc, serving, stats
from ggufspec.analysis import arms, review, traffic, warnings
from ggufspec.domain import (
    Drafting,
    Method,
    Prompt,
    PromptAnswer,
    Request,
    RequestOutcome,
    Role,
    RunResult,
    RunSpec,
    Sample,
    ServiceLevel,
    SpeedVerdict,
    Status,
    TextAudit,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.engines import Engine
from ggufspec.errors import ContextTooSmallError, GgufspecError
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.llama.server import LoadClient, Timings
from ggufspec.measure import audit, prepare_session, scoring
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import read_card
from ggufspec.options import BenchOptions
from ggufspec.options.kinds import LatencyLimits
from ggufspec.report import frames
from ggufspec.report.text import overview
from ggufspec.serving import RequestRecord
from ggufspec.serving.engine import read_server_record
from tests.support import fake_server, fakes, values

PROMPTS = tuple(Prompt(id=name, text=f"Text of {name}", followups=("more",)) for name in "abc")
OK = RequestOutcome.OK


# What is sent


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 9))
def test_every_prompt_is_dealt_equally_often_and_often_enough(n_prompts: int, users: int, seed: int) -> None:
    prompts = [Prompt(id=str(number), text="") for number in range(n_prompts)]
    dealt = serving.plan_traffic(prompts, users, seed=seed)
    assert sorted(prompt.id for prompt in dealt.prompts) == sorted(prompt.id for prompt in prompts)
    assert dealt.n_requests % n_prompts == 0
    assert dealt.n_requests >= serving.REQUESTS_PER_USER * users


def test_the_order_is_that_of_the_seed() -> None:
    prompts = [Prompt(id=str(number), text="") for number in range(30)]
    orders = {serving.plan_traffic(prompts, users, seed=1).prompts for users in (1, 4, 8)}
    assert len(orders) == 1
    assert serving.plan_traffic(prompts, 4, seed=2).prompts not in orders
    assert all(not prompt.followups for prompt in serving.plan_traffic(PROMPTS, 2, seed=1).prompts)


# What follows from the records


def _record(
    number: int, user: int, sent_s: float, end_s: float, outcome: RequestOutcome = OK
) -> RequestRecord:
    return RequestRecord(
        number=number,
        user=user,
        prompt=number % 3,
        sent_s=sent_s,
        end_s=end_s,
        cpu_s=end_s / 100,
        outcome=outcome,
        text="word",
        arrivals=tuple(np.linspace(sent_s + 0.1, end_s, 5).tolist()),
    )


def _changed(record: RequestRecord, **changes: object) -> RequestRecord:
    return msgspec.structs.replace(record, **changes)


def _answered(record: RequestRecord, **changes: Any) -> RequestRecord:
    return _changed(record, timings=Timings(**{"predicted_n": 5} | changes))


@pytest.mark.parametrize(
    ("liar", "words"),
    [
        (lambda record: _answered(record, predicted_n=10**9), "1,000,000,000 tokens, but 32 were asked for"),
        (lambda record: _answered(record, predicted_ms=1e-300), "it decoded for 0.00 s"),
        (
            lambda record: _changed(_answered(record), arrivals=record.arrivals * 2),
            "5 tokens, but 10 pieces of text came",
        ),
    ],
)
def test_impossible_answers_spoil_a_run(liar: Callable[[RequestRecord], RequestRecord], words: str) -> None:
    honest = [_answered(record, predicted_ms=1000 * (record.end_s - record.sent_s)) for record in RECORDS]
    assert serving.summarize(_spec(), honest).sample.status is Status.OK
    parsed = serving.summarize(_spec(), [*honest[:2], liar(RECORDS[2]), *honest[3:]])
    assert parsed.sample.status is Status.IMPLAUSIBLE
    assert words in (parsed.remark or "")


def _spec(users: int = 2, n_requests: int = 6, *, draft: int | None = None) -> RunSpec:
    alone = values.spec(Role.DRAFTING if draft else Role.TARGET, prompt="traffic", draft=draft)
    return replace(alone, traffic=Traffic(users=users, prompts=PROMPTS, n_requests=n_requests))


RECORDS = [
    _record(0, 0, 0.0, 1.0),
    _record(1, 1, 0.0, 2.0),
    _record(2, 0, 1.0, 3.0),
    _record(3, 1, 2.0, 4.0),
    _record(4, 0, 3.0, 5.0),
    _record(5, 1, 4.0, 6.0),
    _record(6, 0, 5.0, 6.0, outcome=RequestOutcome.STOPPED),
]


def test_the_window_is_from_every_users_first_answer_to_the_last_request_that_counts() -> None:
    sample = serving.summarize(_spec(), RECORDS).sample
    assert sample.status is Status.OK
    assert sample.gen_s == 4.0  # from 2 s to 6 s
    assert [each.is_steady for each in sample.traffic.requests] == [False, False, False, True, True, True]
    # of the third request the tokens after 2 s, all of the next three, and those of the one that was stopped
    expected = sum(2.0 < at <= 6.0 for record in RECORDS for at in record.arrivals)
    assert sample.traffic.window_tokens == expected
    assert sample.decode_tps == expected / 4.0
    assert sample.traffic.client_share == pytest.approx(0.01)
    assert sample.itl_s == pytest.approx(1.9 / 4)
    assert sample.ttft_s == pytest.approx(0.1)


def _all(**changes: object) -> list[RequestRecord]:
    """The records, changed alike."""
    return [_changed(record, **changes) for record in RECORDS]


def test_events_of_several_tokens_count_as_many() -> None:
    single, double = (
        serving.summarize(_spec(), records).sample.traffic.window_tokens
        for records in (RECORDS, _all(timings=Timings(predicted_n=10)))
    )
    assert double == 2 * single


def test_acceptance_is_of_the_requests_that_count() -> None:
    told = Timings(predicted_n=5, draft_n=6, draft_n_accepted=3, prompt_n=8, prompt_per_second=80.0)
    sample = serving.summarize(_spec(draft=3), _all(timings=told)).sample
    assert (sample.n_drafted, sample.n_accepted, sample.n_rounds) == (36, 18, 6)
    assert sample.prompt_tokens == 48
    assert sample.prompt_tps == pytest.approx(80.0)


UNSURE = replace(_spec(draft=3), drafting=Drafting(n_max=3, p_min=0.7))
BUSY = {"outcome": RequestOutcome.UNAVAILABLE, "reason": "HTTP 503: no slot", "arrivals": ()}


@pytest.mark.parametrize(
    ("spec", "records", "status", "remark"),
    [
        (_spec(draft=3), RECORDS, Status.DRAFTING_INACTIVE, "no steady window"),
        (UNSURE, RECORDS, Status.OK, None),
        (
            _spec(),
            [*RECORDS[:3], _changed(RECORDS[3], **BUSY), *RECORDS[4:]],
            *(Status.OK, "1 of 6 requests failed: 1 unavailable (HTTP 503: no slot)"),
        ),
        (_spec(), _all(outcome=RequestOutcome.CUT_OFF), Status.FAILED, "6 of 6 requests failed: 6 "),
        (_spec(), _all(outcome=RequestOutcome.TIMED_OUT), Status.TIMED_OUT, "6 of 6 requests failed: 6 "),
        (_spec(), _all(truncated=True), Status.PROMPT_TOO_LONG, ""),
        (_spec(), RECORDS[::2], Status.FAILED, "no steady window"),  # of one user
    ],
)
def test_a_run_without_an_answer_or_a_window_has_failed(
    spec: RunSpec, records: list[RequestRecord], status: Status, remark: str | None
) -> None:
    parsed = serving.summarize(spec, records)
    assert parsed.sample.status is status
    assert parsed.remark is remark is None or remark in parsed.remark


def test_bursts_and_torn_records_are_read() -> None:
    sample = serving.summarize(_spec(), _all(arrivals=(1.0, 1.0001, 1.5, 1.5002))).sample
    assert sample.traffic.burst_share == pytest.approx(2 / 3)
    lines = [serving.encode_record(record) for record in RECORDS]
    assert [*serving.decode_records(lines)] == RECORDS
    assert [*serving.decode_records(['{"run": {}}\n', *lines[:2], lines[2][:30]])] == RECORDS[:2]


# Requests that arrive at a rate


def _queue(rate: float, *, slots: int, service_s: float, n: int = 60, count: int = 40) -> list[RequestRecord]:
    """Records of a server that takes the same time for each request, in the order of arrival."""
    free = [0.0] * slots
    records = []
    for number, sent_s in enumerate(islice(serving.arrival_times(rate, seed=3), n)):
        slot = free.index(min(free))
        free[slot] = max(sent_s, free[slot]) + service_s
        records.append(_record(number, number, sent_s, free[slot]))
    return records


def _open(rate: float, users: int, n_requests: int = 40) -> RunSpec:
    traffic = Traffic(users=users, prompts=PROMPTS, n_requests=n_requests, rate=rate)
    return replace(_spec(), traffic=traffic)


def test_requests_arrive_as_often_as_asked_for() -> None:
    times = [*islice(serving.arrival_times(4.0, seed=1), 4000)]
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.25, rel=0.05)
    assert gaps.std() == pytest.approx(0.25, rel=0.1)  # exponential
    assert times[:9] == [*islice(serving.arrival_times(4.0, seed=1), 9)]
    assert times[1] != next(islice(serving.arrival_times(4.0, seed=2), 1, None))
    assert serving.plan_traffic(PROMPTS, 1, seed=1, rate=2.0).n_requests >= serving.LEAST_ARRIVALS


@pytest.mark.parametrize(("load", "saturated"), [(0.3, False), (0.6, False), (2.0, True), (4.0, True)])
@pytest.mark.parametrize("slots", [1, 4])
def test_a_server_that_cannot_keep_up_is_recognised(load: float, slots: int, saturated: bool) -> None:
    records = _queue(load * slots, slots=slots, service_s=1.0)
    sample = serving.summarize(_open(load * slots, slots), records).sample
    assert sample.traffic.is_saturated is saturated


LEVEL = ServiceLevel(ttft_s=0.5, token_s=0.05)
GOOD = UserRequest(0, OK, True, 9, 0.5, 0.05)


def test_the_first_requests_are_left_out_where_they_arrive_at_a_rate() -> None:
    records = _queue(1.0, slots=4, service_s=1.0)
    sample = serving.summarize(_open(1.0, 4), records).sample
    assert [each.is_steady for each in sample.traffic.requests] == [False] * 4 + [True] * 36
    last = max(record.end_s for record in records if record.number < 40)
    assert sample.gen_s == pytest.approx(last - records[4].sent_s)


@pytest.mark.parametrize(
    ("request_", "level", "is_good"),
    [
        (GOOD, LEVEL, True),
        (GOOD._replace(token_s=None), LEVEL, True),
        (GOOD._replace(token_s=9.0), ServiceLevel(ttft_s=0.5), True),
        (GOOD._replace(ttft_s=0.6), LEVEL, False),
        (GOOD._replace(token_s=0.06), LEVEL, False),
        (GOOD._replace(outcome=RequestOutcome.CUT_OFF), LEVEL, False),
    ],
)
def test_goodput_is_what_keeps_the_limits(request_: UserRequest, level: ServiceLevel, is_good: bool) -> None:
    assert traffic.is_good(request_, level) is is_good


# Percentiles


def test_percentiles_need_values_beyond_them() -> None:
    loads = [np.linspace(1.0, 2.0, 100), np.linspace(1.0, 2.1, 99)]
    for few, percentile in ((loads, 95), ([np.ones(19)], 50), ([], 50)):
        assert stats.percentile_over_loads(few, percentile) is None
    estimate = stats.percentile_over_loads([*loads, [1.5]], 95)
    assert estimate.value == pytest.approx(1.99, abs=0.02)
    estimate = stats.percentile_over_loads([[0.0] * 30, [0.0] * 30, [1.0] * 100], 50)
    assert (estimate.value, estimate.lo, estimate.hi) == (1.0, None, None)


def test_the_interval_of_a_percentile_is_over_loads() -> None:
    for n_loads in (1, 2):
        few = stats.percentile_over_loads([np.linspace(1.0, 2.0, 100)] * n_loads, 50)
        assert (few.lo, few.hi) == (None, None)
    near, far = (
        stats.percentile_over_loads([np.linspace(1.0, 2.0, 100) * factor for factor in factors], 50)
        for factors in ((1.0, 1.01, 0.99), (1.0, 1.5, 0.7))
    )
    assert 0 < near.relative_half_width < 0.1 < far.relative_half_width
    random = np.random.default_rng(5)
    inside, n = 0, 300
    for _ in range(n):  # they hold what they promise
        loads = [random.exponential(1.0, 60) * np.exp(random.normal(0, 0.2)) for _ in range(5)]
        estimate = stats.percentile_over_loads(loads, 50)
        inside += estimate.lo <= np.log(2) <= estimate.hi
    assert inside / n > 0.88


# The engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "llama"


def _engine(folder: Path, *, timeout_s: float = 20, at_load: str = "") -> Engine:
    fake_server.program(folder / "llama-server", fake_server.Behaviour(at_load=at_load))
    install = installs.find_install(folder)
    return serving.TrafficEngine(install=install, timeout_s=timeout_s, capacity=9, per_arm=True)


def _sent(users: int, *texts: str, draft: int | None = None, n_requests: int = 6) -> RunSpec:
    prompts = tuple(Prompt(id=f"p{number}", text=text) for number, text in enumerate(texts))
    spec = _spec(users, n_requests, draft=draft)
    return replace(spec, traffic=Traffic(users=users, prompts=prompts, n_requests=n_requests))


def _outcomes(sample: Sample) -> Counter[RequestOutcome]:
    return Counter(each.outcome for each in sample.traffic.requests)


def test_users_are_served_at_once_by_one_load(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        alone = engine.measure(_sent(3, "one", "two", n_requests=8), tmp_path / "alone")
        drafting = engine.measure(_sent(3, "one", "two", draft=3, n_requests=8), tmp_path / "drafting")
    for measurement in (alone, drafting):
        assert measurement.error is None
        assert measurement.sample.status is Status.OK
        assert _outcomes(measurement.sample) == {OK: 8}
        assert [answer.prompt for answer in measurement.sample.traffic.answers] == [0, 1]
    assert drafting.sample.n_accepted
    argv = alone.argv
    assert argv[argv.index("--parallel") + 1] == "3"
    assert argv[argv.index("--ctx-size") + 1] == str(3 * 512)
    assert "--no-kv-unified" in argv
    assert {start["argv"].count("--model-draft") for start in fake_server.starts(folder)} == {0, 1}
    asked = [each for each in fake_server.requests(folder) if each["prompt"] in {"one", "two"}]
    assert not any("timings_per_token" in each or "return_tokens" in each for each in asked)
    assert not any(each["cache_prompt"] for each in asked)


def test_a_drafter_that_reads_zeros_for_images_is_named_under_several_users(
    folder: Path, tmp_path: Path
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = Request.of({"messages": [{"role": "user", "content": [image]}]})
    told = "echo target embeddings of size 8 do not fit the draft input width 4 >&2"
    with _engine(folder, at_load=told) as engine:
        for name, request, zeros in (("told", None, None), ("seen", asked, True)):
            prompts = (Prompt(id="one", text="one", request=request), Prompt(id="two", text="two"))
            traffic_sent = Traffic(users=2, prompts=prompts, n_requests=4)
            spec = replace(_spec(draft=3), traffic=traffic_sent)
            sample = engine.measure(spec, tmp_path / name).sample
            assert (sample.status, sample.n_draft, sample.reads_zeros) == (Status.OK, 3, zeros)
            lines = (tmp_path / f"{name}.out").read_text().splitlines(keepends=True)
            reread = read_server_record(spec, lines)
            assert (reread.sample.n_draft, reread.sample.reads_zeros) == (3, zeros)


def test_requests_that_arrive_are_all_recorded(folder: Path, tmp_path: Path) -> None:
    spec = _sent(2, "one", "two", n_requests=20)
    with _engine(folder) as engine:
        measured = engine.measure(replace(spec, traffic=replace(spec.traffic, rate=40.0)), tmp_path / "log")
    assert measured.sample.status is Status.OK
    assert _outcomes(measured.sample) == {OK: 20}
    lines = (tmp_path / "log.out").read_text().splitlines(keepends=True)
    records = sorted(serving.decode_records(lines), key=lambda record: record.number)
    sent = [record.sent_s for record in records]
    for at_s, expected in zip(sent, serving.arrival_times(40.0, seed=1), strict=False):
        assert expected - 0.001 <= at_s  # never early; late on a busy machine


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("@unavailable", RequestOutcome.UNAVAILABLE),
        ("@busy", RequestOutcome.REFUSED),
        ("@long", RequestOutcome.REFUSED),
        ("@cut", RequestOutcome.CUT_OFF),
        ("@reset", RequestOutcome.DISCONNECTED),
        ("@notjson", RequestOutcome.UNREADABLE),
        ("@garbage", RequestOutcome.UNREADABLE),
        ("@error", RequestOutcome.SERVER_ERROR),
        ("@string", RequestOutcome.SERVER_ERROR),
    ],
)
def test_failed_requests_end_alone(folder: Path, tmp_path: Path, fault: str, outcome: RequestOutcome) -> None:
    with _engine(folder) as engine:
        measured = engine.measure(_sent(2, "fine", fault, "good", n_requests=9), tmp_path / "log")
        again = engine.measure(_sent(2, "fine", "good"), tmp_path / "again")
    assert measured.sample.status is Status.OK
    assert _outcomes(measured.sample) == {OK: 6, outcome: 3}
    assert measured.error.startswith("3 of 9 requests failed: 3 ")
    assert again.sample.status is Status.OK


def test_a_server_that_dies_is_a_typed_row_and_no_request_is_lost(folder: Path, tmp_path: Path) -> None:
    with _engine(folder) as engine:
        measured = engine.measure(_sent(2, "fine", "@die", n_requests=10), tmp_path / "log")
        again = engine.measure(_sent(2, "fine"), tmp_path / "again")
    assert (measured.sample.status, _outcomes(measured.sample).total()) == (Status.CRASHED, 10)
    assert again.sample.status is Status.OK  # with another server


def test_nobody_waits_for_a_slot_that_hangs(folder: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    with _engine(folder, timeout_s=2) as engine:
        measured = engine.measure(_sent(2, "fine", "@hang", "good"), tmp_path / "log")
    assert time.monotonic() - started < 30
    assert measured.sample.status is Status.TIMED_OUT
    outcomes = _outcomes(measured.sample)
    assert outcomes[RequestOutcome.TIMED_OUT] >= 1
    assert outcomes.total() == 6


def test_ctrl_c_ends_all_at_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three servers that ignore SIGTERM are waited for together, not one after another."""
    assert proc._GRACE_S == 1  # so that Ctrl-C ends within two seconds
    grace_s = 3.0  # long beside a busy machine's delays
    monkeypatch.setattr(proc, "_GRACE_S", grace_s)

    def interrupt() -> None:
        while not any(each["prompt"] == "good" for each in fake_server.requests(folder)):
            time.sleep(0.05)
        time.sleep(0.3)
        interrupted.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    interrupted: list[float] = []
    with _engine(folder, timeout_s=100, at_load="trap '' TERM") as engine:
        for users in (1, 2):
            engine.measure(_sent(users, "first"), tmp_path / "load")  # the models are loaded
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            engine.measure(_sent(3, "good", "@hang", n_requests=40), tmp_path / "log")
        thread.join()
    assert time.monotonic() - interrupted[0] < 2 * grace_s
    lines = (tmp_path / "log.out").read_text().splitlines(keepends=True)
    records = [*serving.decode_records(lines)]
    assert {record.outcome for record in records} >= {OK, RequestOutcome.STOPPED}
    assert sorted(record.number for record in records) == [*range(len(records))]


async def _send_all(write: Callable[[RequestRecord], None]) -> None:
    """Send the requests of three users to a server that has no slot."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(503))
    async with aclosing(LoadClient("http://x", transport=transport)) as client:
        sent = Traffic(users=3, prompts=PROMPTS, n_requests=9)
        await serving.TrafficRun(client=client, traffic=sent, make_body=lambda _: {}, write=write).run()


def test_a_record_that_cannot_be_written_ends_all_users() -> None:
    def write(record: RequestRecord) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        serving.run_in_loop(_send_all(write))


def test_several_users_can_be_measured_from_a_notebook() -> None:
    """There an event loop already runs in the thread."""
    records: list[RequestRecord] = []

    async def cell() -> None:
        serving.run_in_loop(_send_all(records.append))

    asyncio.run(cell())
    assert {record.outcome for record in records} == {RequestOutcome.UNAVAILABLE}
    assert sum(record.number < 9 for record in records) == 9


# What is started


@pytest.mark.parametrize("build", ["0.2.90", "0.3.16", "0.3.36"])
def test_every_slot_has_the_complete_context(build: str) -> None:
    spec = replace(values.spec(path=Path("T")), traffic=Traffic(users=4))
    install = fakes.recorded_install(build)
    words = commands.server_argv(spec, install, port=1, key_file=Path("K"), slots_dir=None)
    assert words[words.index("--parallel") + 1] == "4"
    assert words[words.index("--ctx-size") + 1] == str(4 * 512)
    assert ("--no-kv-unified" in words) == (build == "0.3.36")


def test_memory_is_planned_for_all_slots() -> None:
    card = read_card(paths.models_dir() / "demo" / "target.gguf")
    one, four = (
        memory.settings_for(replace(values.spec(), traffic=Traffic(users=users)), memory.TODAY)
        for users in (1, 4)
    )
    assert sum(memory.cache_bytes(card, four)) == 4 * sum(memory.cache_bytes(card, one)) > 0


# A bench


@pytest.mark.usefixtures("llama_server")
@pytest.mark.parametrize(
    ("asked", "refused", "hint"),
    [
        (
            {"engine": None, "parallel": 4},
            "neither several users nor other text",
            "add --engine server for --parallel and --depth",
        ),
        ({"engine": None, "depth": 10}, "neither several users nor other text", ""),
        ({"depth": 3}, "no tokenizer program", ""),
        ({"parallel": 2, "slo": LEVEL}, "no goodput", ""),
    ],
)
def test_what_users_need_is_named(asked: dict[str, Any], refused: str, hint: str) -> None:
    with pytest.raises(GgufspecError, match=refused) as caught:
        prepare_session(BenchOptions(**{"engine": "server"} | asked))
    assert hint in (caught.value.hint or "")


def test_every_number_of_users_has_its_own_target_alone(llama_server: Path) -> None:
    session = prepare_session(BenchOptions(engine="server", parallel=(1, 4), draft=(3, 5)))
    suite = session.suite
    assert [[(arm.role, arm.n_slots) for arm in block.arms] for block in suite.blocks] == [
        [(Role.TARGET, users), (Role.DRAFTING, users), (Role.DRAFTING, users)] for users in (1, 4)
    ]
    assert suite.n_arms.total() == sum(len(block.arms) for block in suite.blocks)
    assert all(arm.baseline == block.arms[0] for block in suite.blocks for arm in block.arms)
    assert (suite.n_runs, suite.n_warmups) == (30, 0)
    cells = suite.cells(suite.blocks[1], range(1), load_key=session.engine.load_key, capacity=9)
    assert [(cell.warmup, cell.anchor) for cell in cells] == [(False, False)] * 3
    assert any(note.startswith("traffic: 4 users, 24 requests of 8 prompts") for note in session.notes)


WORDS = "printf '[1'; for word in $2; do printf ', 2'; done; echo ']'\n"
"""A tokenizer for which every word is a token, behind a BOS."""


@pytest.fixture
def tokenizer(llama_server: Path) -> None:
    fakes.program(llama_server / "llama-tokenize", WORDS)


def test_text_before_prompts_has_as_many_tokens_as_asked_for(tokenizer: None) -> None:
    session = prepare_session(BenchOptions(engine="server", parallel=(1, 2), depth=(0, 300)))
    traffics = [block.arms[0].traffic for block in session.suite.blocks]
    assert [(each.depth, each.users) for each in traffics if each] == [(0, 1), (0, 2), (300, 1), (300, 2)]
    shallow, deep = (each for each in traffics if each and each.users == 1)
    for before, behind in zip(shallow.prompts, deep.prompts, strict=True):
        assert behind.id == before.id
        other_text = behind.text.removesuffix(f"\n\n{before.text}")
        assert len(other_text.split()) == 300
    assert {arm.context for block in session.suite.blocks for arm in block.arms} == {1024}


def test_a_depth_alone_is_of_one_user_and_of_a_text_that_is_long_enough(
    tokenizer: None, tmp_path: Path
) -> None:
    (block,) = prepare_session(BenchOptions(engine="server", depth=10)).suite.blocks
    assert block.arms[0].n_slots == 1
    file = tmp_path / "book.txt"
    file.write_text("one two three four five six")
    asked = BenchOptions(engine="server", depth=3, context_file=file, prompt=("go on",))
    traffic = prepare_session(asked).suite.blocks[0].arms[0].traffic
    assert [prompt.text for prompt in traffic.prompts] == ["one two three\n\ngo on"]
    assert prepare_session(asked.replace(depth=6)).suite.blocks[0].arms[0].traffic is not None
    with pytest.raises(GgufspecError, match=r"book.txt has 6 tokens, fewer than a depth of 7"):
        prepare_session(asked.replace(depth=7))
    with pytest.raises(ContextTooSmallError, match="1000 tokens of other text") as caught:
        prepare_session(BenchOptions(engine="server", depth=(0, 1000)))
    assert "a smaller --depth" in caught.value.hint


def test_rates_are_an_axis(llama_server: Path) -> None:
    session = prepare_session(
        BenchOptions(engine="server", parallel=2, rate=(0.5, 2.0), slo=LEVEL, method="draft-model")
    )
    traffics = [block.arms[0].traffic for block in session.suite.blocks]
    told = [(each.users, each.rate, each.service_level) for each in traffics if each]
    assert told == [(2, 0.5, LEVEL), (2, 2.0, LEVEL)]


def test_limits_are_read_or_refused() -> None:
    both = ServiceLevel(ttft_s=0.5, token_s=0.05)
    assert LatencyLimits().parse("ttft=500ms,itl=50ms") == both
    assert LatencyLimits().parse("itl=0.1s") == ServiceLevel(token_s=0.1)
    for text in ("", "ttft", "ttft=5", "ttft=0ms", "ttft=1s,ttft=2s", "itl=-1s", "p99=1s"):
        with pytest.raises(ValueError, match="not a list of limits"):
            LatencyLimits().parse(text)


def test_methods_that_learn_from_requests_are_named(llama_server: Path) -> None:
    asked = BenchOptions(engine="server", parallel=2, method=("draft-model", Method.NGRAM_MOD.value), draft=3)
    notes = prepare_session(asked).notes
    assert any("ngram-mod learns from earlier requests" in note for note in notes)


def _served(
    users: int, rate: float, *, draft: int | None = None, repeat: int = 0, same: bool = True
) -> RunResult:
    """A run of so many users, each of whom has 20 answers at ``rate`` tokens/s."""
    requests = tuple(
        UserRequest(number % 3, OK, number >= users, 101, 0.1 + number / 1000, 1 / rate)
        for number in range(20 * users)
    )
    sample = TrafficSample(
        requests=(*requests, UserRequest(0, RequestOutcome.REFUSED, True, 0)),
        answers=(PromptAnswer(0, "same words" if same else "other words", 32),),
        window_tokens=round(1000 * users * rate),
        burst_share=0.25,
        client_share=0.03,
    )
    made = values.run(Role.DRAFTING if draft else Role.TARGET, prompt="traffic", draft=draft, repeat=repeat)
    return replace(
        made,
        engine="server",
        spec=replace(_spec(users, draft=draft), prompt=Prompt(id="traffic", text="")),
        sample=replace(made.sample, gen_s=1000.0, traffic=sample, text=None),
        program_s=1100.0,
        load=repeat * 10 + users + (draft or 0),
    )


@pytest.fixture
def served() -> list[RunResult]:
    runs = []
    for repeat in range(3):
        for users, gain in ((1, 1.5), (4, 0.8)):
            heat = 1 + repeat / 100
            runs.append(_served(users, 100.0 * heat, repeat=repeat))
            runs.append(_served(users, 100.0 * gain * heat**1.1, draft=3, repeat=repeat))
    return runs


def test_the_speed_up_is_of_all_users_together(served: list[RunResult]) -> None:
    alone, drafting, alone_4, drafting_4 = arms.group(values.bench(*served))
    assert [arm.spec.n_slots for arm in (alone, drafting, alone_4, drafting_4)] == [1, 1, 4, 4]
    assert drafting.gain.ratio.value == pytest.approx(1.5, rel=0.01)
    assert drafting.is_decided
    assert drafting_4.judgement.verdict is SpeedVerdict.SLOWER
    assert alone_4.rate.value == pytest.approx(404, rel=0.01)
    assert alone_4.user_rate.value == pytest.approx(101, rel=0.01)
    assert drafting_4.user_gain.ratio.value == pytest.approx(0.8, rel=0.01)


def test_percentiles_and_failures_are_of_all_loads(served: list[RunResult]) -> None:
    *_, drafting = arms.group(values.bench(*served))
    figures = drafting.traffic
    assert (figures.runs, figures.requests, dict(figures.failed)) == (3, 243, {RequestOutcome.REFUSED: 3})
    assert set(figures.ttft_s) == {50, 95}  # 228 steady requests: not ten beyond the 99th
    assert traffic.uncertain_percentiles(figures) == {95: 11}
    assert "11 beyond p95" in review.warnings(values.bench(*served))["few-beyond"]
    assert "few-beyond" not in warnings.doubtful(["few-beyond"])
    assert figures.client_share == 0.03


def test_the_table_shows_what_users_saw(served: list[RunResult]) -> None:
    stored = values.bench(*served)
    text = overview.overview(stored) + overview.overview(stored, "table")
    for words in (
        *("tokens/s per user", "first token p95 ms", "3 refused", "3 prompts × 3 repeats"),
        "Client: at most 3.0 % of the time between two tokens.",
        "Bursts: 25.0 % of the tokens",
        "1 user: Drafting with drafter.gguf at γ = 3 is faster",
        "4 users: Drafting with drafter.gguf at γ = 3 is slower",
        "Its answers equal the target's.",
    ):
        assert words in text
    assert "first token p99 ms" not in text
    assert "unequal-lengths" not in text
    frame = frames.summary(stored)
    last = frame.iloc[-1]
    assert (last["users"], last["depth"], last["requests"], last["requests_failed"]) == (4, 0, 243, 3)
    assert last["user_speedup"] == pytest.approx(0.8, rel=0.01)
    assert 0.1 < last["ttft_p50_s"] < 0.2


def test_runs_without_traffic_have_no_figures_of_users() -> None:
    plain = values.whole_bench()
    alone, *_ = arms.group(plain)
    assert (alone.traffic, alone.user_rate, traffic.user_rate(TrafficSample(requests=()))) == (None,) * 3
    assert frames.summary(plain)["users"].isna().all()


def test_the_table_shows_goodput(served: list[RunResult]) -> None:
    level = ServiceLevel(ttft_s=0.11)
    runs = []
    for run in served:
        sent = replace(run.spec.traffic, rate=2.0, service_level=level)
        runs.append(replace(run, spec=replace(run.spec, traffic=sent)))
    text = overview.overview(values.bench(*runs))
    assert "good/s" in text
    assert "requests/s that kept the service level" in text
    arm = arms.group(values.bench(*runs))[0]
    assert arm.traffic.goodput.value == pytest.approx(2.0 * 10 / 20)  # 1 of 21 is not steady, 1 failed


def test_a_bench_stores_a_run_for_each_load(llama_server: Path) -> None:
    asked = BenchOptions(
        engine="server", parallel=(1, 2), draft=3, n_predict=16, repeats=2, prompt=("one", "two"), threads=1
    )
    runs = ggufspec.load(ggufspec.bench(asked).meta.id).current  # on a busy machine some are measured again
    assert len({run.load for run in runs}) == len(runs) == 8
    for run in runs:
        assert run.sample.status is Status.OK, run.error
        assert len(run.sample.traffic.requests) == run.spec.traffic.n_requests
    compared = [run.text_identical for run in runs if run.spec.role is Role.DRAFTING]
    assert compared == [True] * 4  # all write the same words


def test_answers_are_compared_prompt_by_prompt() -> None:
    own, same = PromptAnswer(0, "one two three", 8), PromptAnswer(0, "one two three", 8)
    assert audit.is_same_answer(same, own, n_predict=8)
    assert not audit.is_same_answer(same._replace(text="one two four"), own, n_predict=8)
    assert audit.is_same_answer(same._replace(text="one two"), own, n_predict=8)  # it was cut
    assert not audit.is_same_answer(same._replace(text="one two", tokens=5), own, n_predict=8)
    first = TrafficSample(requests=(), answers=(own, PromptAnswer(2, "x", 1)))
    second = TrafficSample(requests=(), answers=(same, PromptAnswer(1, "y", 1)))
    assert audit.pair_answers(second, first) == [(same, own)]


def test_audits_of_answers_are_one() -> None:
    one = TextAudit(tokens=10, near_ties=1, divergent=0, worst_margin=0.2)
    other = TextAudit(tokens=5, near_ties=0, divergent=2, first_divergent=3, worst_margin=4.0)
    merged = scoring.merge_audits([one, other])
    assert merged == TextAudit(tokens=15, near_ties=1, divergent=2, first_divergent=13, worst_margin=4.0)
    failed = TextAudit(tokens=0, unjudged="no library")
    assert scoring.merge_audits([one, failed]) == failed
    assert scoring.merge_audits([one]) is one
