"""Servers that run already: what they say of themselves, what is measured at them, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ggufspec
from ggufspec import results, serving
from ggufspec.analysis import arms, comparing, guarding, review
from ggufspec.domain import (
    Endpoint,
    Failure,
    Prompt,
    RequestOutcome,
    Role,
    RunningServers,
    RunResult,
    RunSpec,
    Sampling,
    ServiceLevel,
    SpeedJudgement,
    SpeedVerdict,
    Status,
    TextVerdict,
    Traffic,
)
from ggufspec.errors import GgufspecError, InconclusiveError, NetworkError, ResultsError
from ggufspec.llama import server
from ggufspec.llama.server import RequestError, ServerCounters, Timings
from ggufspec.measure import api
from ggufspec.options import BenchOptions
from ggufspec.report import frames
from ggufspec.report.text import comparison, details, overview
from ggufspec.results import ResultSet
from ggufspec.serving import CounterPair, RequestRecord, UserReply
from tests.support import fake_server, shell, values
from tests.support.fake_server import MODEL, FakeServer

KEY = "k-3141592653589793"
VLLM = f"""\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="{MODEL}"}} 40.0
vllm:spec_decode_num_drafts_total{{engine="1",model_name="{MODEL}"}} 60.0
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="{MODEL}"}} 300.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="{MODEL}"}} 1.5e+02
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="0"}} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="1"}} 50.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="2"}} 20.0
vllm:generation_tokens_total{{engine="0"}} 260.0
vllm:gpu_cache_usage_perc{{engine="0"}} NaN
"""
SGLANG = """\
sglang:spec_accept_length{tp_rank="0"} 2.8
sglang:spec_verify_calls_total{tp_rank="0"} 100.0
sglang:generation_tokens_total{is_streaming="true"} 260.0
sglang:num_requests_total{is_streaming="true"} 10.0
"""


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _start(servers: ExitStack, fake: FakeServer | None = None) -> FakeServer:
    return servers.enter_context(fake_server.serve(fake or FakeServer()))


def _pair(servers: ExitStack, software: str = "vLLM") -> tuple[FakeServer, FakeServer]:
    """A server of the target alone, and one that drafts."""
    alone, drafting = FakeServer(software=software), FakeServer(software=software, gamma=3)
    return _start(servers, alone), _start(servers, drafting)


def _request(alone: FakeServer, drafting: FakeServer | None = None) -> BenchOptions:
    return BenchOptions(
        url=alone.url,
        url_drafting=None if drafting is None else drafting.url,
        prompt=("one", "two"),
        n_predict=16,
        repeats=2,
        timeout=60.0,
    )


def _measure(asked: BenchOptions) -> ResultSet:
    return ggufspec.load(ggufspec.bench(asked).meta.id)


# Addresses and keys


ADDRESSES = {
    "http://127.0.0.1:8080": "http://127.0.0.1:8080",
    "http://127.0.0.1:8080/": "http://127.0.0.1:8080",
    "http://localhost:8000/v1": "http://localhost:8000",
    "https://models.example/llm/v1/": "https://models.example/llm",
    "http://[::1]:8080": "http://[::1]:8080",
    **dict.fromkeys(("", "127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", "http://x:0"), "address"),
    "file:///x": "address",
    "http://x/?a=b": "more than a host",
    "http://me:hunter2secret@127.0.0.1:8080": "name or password",
}


@pytest.mark.parametrize(("text", "expected"), ADDRESSES.items())
def test_an_address_is_of_a_server_and_holds_no_password(text: str, expected: str) -> None:
    if expected.startswith("http"):
        assert server.check_url(text) == expected
        return
    with pytest.raises(GgufspecError, match=expected) as caught:
        server.check_url(text)
    assert "hunter2secret" not in caught.value.message
    assert ("--api-key-file" in (caught.value.hint or "")) == ("password" in expected)


def test_keys_are_read_from_files_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert server.read_key(None) is None
    assert server.read_key(file) == KEY
    monkeypatch.setenv(server.KEY_VARIABLE, "other")
    assert server.read_key(None) == "other"
    assert server.read_key(file) == KEY
    urls = [f"http://127.0.0.{number}" for number in (1, 2, 3)]
    assert server.read_keys(urls, [file]) == server.read_keys(urls, [file] * 3) == dict.fromkeys(urls, KEY)
    with pytest.raises(GgufspecError, match="2 key files do not go with 3 servers"):
        server.read_keys(urls, [file] * 2)
    for wrong in ("", "two words", "two\nlines", "schlüssel"):
        file.write_text(wrong)
        with pytest.raises(GgufspecError, match="key file"):
            server.read_key(file)
    with pytest.raises(GgufspecError, match="cannot be read"):
        server.read_key(tmp_path / "none")


def test_a_key_in_the_clear_is_recognised() -> None:
    assert server.sends_in_clear("http://models.example", KEY)
    for url in ("https://models.example", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:1"):
        assert not server.sends_in_clear(url, KEY)
    assert not server.sends_in_clear("http://models.example", None)


# What servers count


DRAFTED = ServerCounters(rounds=100, drafted=300, accepted=150, accepted_at=(80, 50, 20), generated=260)
COUNTERS = {
    **dict.fromkeys((VLLM, VLLM.replace("_total", "")), DRAFTED),
    SGLANG: ServerCounters(rounds=100, generated=260, requests=10),
    **{
        f"{name}_total 70\n": ServerCounters(generated=70)
        for name in ("vllm:generation_tokens", "sglang:generation_tokens", "llamacpp:tokens_predicted")
    },
    **dict.fromkeys(("", "process_open_fds 9.0", "vllm:num_requests_running 1.0", "{}{}{ 3")),
    **dict.fromkeys(("sglang:spec_accept_length 2.8", "vllm:generation_tokens_total 1e999")),
}


@pytest.mark.parametrize(("metrics", "counters"), COUNTERS.items())
def test_counters_are_read_by_name(metrics: str, counters: ServerCounters | None) -> None:
    assert server.read_counters(metrics) == counters


def _spec(endpoint: Endpoint, *, chat: bool = False, system: str | None = None) -> RunSpec:
    prompts = (Prompt(id="a", text="Text of a"),)
    return replace(
        values.spec(Role.DRAFTING),
        drafting=None,
        n_predict=16,
        traffic=Traffic(users=1, prompts=prompts, n_requests=2),
        servers=RunningServers(drafting=endpoint, chat=chat, system=system),
    )


ZERO = ServerCounters(rounds=0, generated=0, requests=0)
EARLIER = ServerCounters(rounds=10, drafted=30, accepted=10, accepted_at=(5, 3, 2), generated=25)


@pytest.mark.parametrize(
    ("before", "after", "counts", "accepted_at"),
    [
        (EARLIER, DRAFTED, (90, 270, 140, 235), (75, 47, 18)),
        (ZERO, COUNTERS[SGLANG], (100, 300, 150, 260), None),  # it counts rounds and tokens
        (None, None, (None, None, None, 0), None),
        (ServerCounters(rounds=1), None, (None, None, None, 0), None),
        (ServerCounters(rounds=9), ServerCounters(rounds=1), (None, None, None, 0), None),  # started anew
    ],
)
def test_acceptance_is_the_difference_of_two_counts(
    before: ServerCounters | None,
    after: ServerCounters | None,
    counts: tuple[int | None, ...],
    accepted_at: tuple[int, ...] | None,
) -> None:
    spec = _spec(Endpoint(url="http://x", model="m", software="vLLM", draft_size=3))
    pair = CounterPair(before=before, after=after)
    sample = serving.with_counters(serving.summarize(spec, []), spec, pair).sample
    assert (sample.n_rounds, sample.n_drafted, sample.n_accepted, sample.gen_tokens) == counts
    assert (sample.accepted_at, sample.n_draft) == (accepted_at, 3)


def test_tokens_for_other_clients_are_recognised() -> None:
    spec = _spec(Endpoint(url="http://x", model="m", software="vLLM", drafts=False)).baseline
    counted = CounterPair(before=ServerCounters(generated=100), after=ServerCounters(generated=300))
    for pair, received, share in (
        *((counted, 150, 0.25), (counted, 200, 0.0), (counted, 210, 0.0)),
        (CounterPair(), 9, None),
    ):
        parsed = serving.with_counters(serving.summarize(spec, []), spec, pair, received=received)
        assert parsed.sample.traffic.others_share == share


RECORD = RequestRecord(number=0, user=0, prompt=0, sent_s=0, end_s=1, cpu_s=0, outcome=RequestOutcome.OK)


def test_each_request_keeps_what_the_server_counted_of_it() -> None:
    spec = _spec(Endpoint(url="http://x", model="m", software="llama-server"))
    counts = Timings(prompt_n=3, cache_n=4, predicted_n=5, predicted_ms=9.0, draft_n=6, draft_n_accepted=2)
    records = [msgspec.structs.replace(RECORD, timings=counts), msgspec.structs.replace(RECORD, number=1)]
    traffic = serving.summarize(spec, records).sample.traffic
    told = [(one.prompt_tokens, one.cached_tokens, one.drafted, one.accepted) for one in traffic.requests]
    assert told == [(3, 4, 6, 2), (None, None, None, None)]


@pytest.mark.parametrize(("n_arrived", "token_s"), [(7, 0.1), (6, 0.1), (3, 0.2)])
def test_tokens_that_never_come_take_the_time_the_server_tells(n_arrived: int, token_s: float) -> None:
    spec = _spec(Endpoint(url="http://x", model="m", software="llama-server"))
    arrivals = tuple(0.5 + 0.6 * place / (n_arrived - 1) for place in range(n_arrived))
    timings = Timings(prompt_n=3, predicted_n=7, predicted_ms=1200.0)
    record = msgspec.structs.replace(RECORD, end_s=2.0, arrivals=arrivals, timings=timings)
    (request,) = serving.summarize(spec, [record]).sample.traffic.requests
    assert request.token_s == pytest.approx(token_s)


# Requests and answers


def test_requests_name_only_what_the_server_has_to_know() -> None:
    hello = Prompt(id="a", text="Hello")
    assert serving.make_body(_spec(Endpoint(url="http://x", model="m")), hello) == {
        "model": "m",
        "prompt": "Hello",
        "max_tokens": 16,
        "temperature": 0.0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    spec = _spec(Endpoint(url="http://x", model="m", software="llama-server"), chat=True, system="Be brief")
    warm = replace(spec, sampling=Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.0))
    body = serving.make_body(warm, hello)
    told = [("system", "Be brief"), ("user", "Hello")]
    assert [(message["role"], message["content"]) for message in body["messages"]] == told
    assert (body["temperature"], body["top_k"], body["top_p"]) == (0.7, 20, 0.9)
    assert body.keys().isdisjoint({"prompt", "min_p"})
    assert body["cache_prompt"] is False


def _take(*events: str) -> UserReply:
    reply = UserReply()
    try:
        for number, event in enumerate(events):
            if not serving.take_event(reply, event, float(number)):
                break
    except (Failure, RequestError) as error:
        reply.fail_by(error)
    return reply


def test_a_chunk_of_several_tokens_is_one_arrival() -> None:
    reply = _take(
        '{"choices": [{"delta": {"role": "assistant", "content": ""}}]}',
        '{"choices": [{"delta": {"content": "one two"}, "finish_reason": null}]}',
        '{"choices": [{"delta": {"reasoning_content": "three"}, "finish_reason": "length"}]}',
        '{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}',
        "[DONE]",
        '{"choices": [{"text": "never read"}]}',
    )
    assert (reply.outcome, reply.arrivals, "".join(reply.texts)) == (
        RequestOutcome.OK,
        [1.0, 2.0],
        "one two<think>three",
    )
    assert (reply.timings.prompt_n, reply.timings.predicted_n) == (5, 7)


def test_timings_of_llama_server_are_kept() -> None:
    timings = '"timings": {"predicted_n": 3, "predicted_ms": 9.0, "draft_n": 4, "draft_n_accepted": 2}'
    reply = _take(
        f'{{"choices": [{{"text": "", "finish_reason": "stop"}}], {timings}}}',
        '{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 8}}',
    )
    assert (reply.timings.predicted_n, reply.timings.draft_n_accepted) == (3, 2)


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        *(("{half", RequestOutcome.UNREADABLE), ('{"choices": 3}', RequestOutcome.UNREADABLE)),
        ('{"error": {"code": 500, "message": "out of blocks"}}', RequestOutcome.SERVER_ERROR),
        ('{"error": "out of blocks"}', RequestOutcome.SERVER_ERROR),
        ('{"object": "error", "message": "out of blocks", "code": 500}', RequestOutcome.SERVER_ERROR),
    ],
)
def test_errors_in_a_stream_have_an_outcome(event: str, outcome: RequestOutcome) -> None:
    assert _take('{"choices": [{"text": "x"}]}', event).outcome is outcome


# What servers say of themselves


@pytest.mark.parametrize(
    ("software", "version"), [("llama-server", "b9976-1a2b3c4"), ("vLLM", "0.11.0"), ("SGLang", "0.5.5")]
)
@pytest.mark.parametrize("gamma", [0, 3])
def test_servers_are_recognised(servers: ExitStack, software: str, version: str, gamma: int) -> None:
    fake = _start(servers, FakeServer(software=software, gamma=gamma))
    endpoint = server.describe_server(fake.url, None)
    assert (endpoint.url, endpoint.model, endpoint.context) == (fake.url, MODEL, 512)
    assert (endpoint.software, endpoint.version, endpoint.drafts) == (software, version, gamma > 0)
    if software != "llama-server":
        assert endpoint.draft_size == (gamma or None)
    else:
        assert (endpoint.slots, endpoint.n_params, endpoint.model_bytes) == (2, 1000, 4000)


def test_other_servers_are_taken_as_they_are(servers: ExitStack) -> None:
    fake = _start(servers, FakeServer(software="other", has_metrics=False))
    endpoint = server.describe_server(fake.url, None)
    assert (endpoint.software, endpoint.drafts, endpoint.draft_size) == (None, None, None)
    assert endpoint.summary == f"{MODEL} on an unknown server at {fake.url}"


TWO = FakeServer(models=("a", "b"))


@pytest.mark.parametrize(
    ("fake", "model", "key", "refused", "hint"),
    [
        (TWO, None, None, "several models: a, b", "--served-model"),
        (TWO, "c", None, "no model 'c'", ""),
        *((FakeServer(key=KEY), None, key, "without a valid key", "--api-key-file") for key in (None, "no")),
        *(
            (FakeServer(answers={"/v1/models": answer}), None, None, "lists no models at /v1/models", "")
            for answer in ("not json", "[]", '{"data": []}', '{"data": [{"name": "x"}]}')
        ),
    ],
)
def test_what_is_no_server_of_the_model_is_refused(
    servers: ExitStack, fake: FakeServer, model: str | None, key: str | None, refused: str, hint: str
) -> None:
    with pytest.raises(GgufspecError, match=refused) as caught:
        server.describe_server(_start(servers, fake).url, key, model=model)
    assert hint in (caught.value.hint or "")


def test_servers_are_asked_for_a_model_with_a_key(servers: ExitStack) -> None:
    fake = _start(servers, FakeServer(models=("a", "b"), key=KEY))
    assert server.describe_server(fake.url, KEY, model="b").model == "b"
    with pytest.raises(NetworkError, match=r"no server answers at http://127\.0\.0\.1:1:"):
        server.describe_server("http://127.0.0.1:1", None)


def test_redirects_are_refused_and_the_key_goes_nowhere_else(servers: ExitStack) -> None:
    elsewhere = _start(servers)
    fake = _start(servers, FakeServer(redirects_to=elsewhere.url))
    with pytest.raises(GgufspecError, match=r"redirects to .* not followed"):
        server.describe_server(fake.url, KEY)
    assert not elsewhere.requests


# A bench


def test_two_servers_are_compared_in_turn(servers: ExitStack) -> None:
    alone, drafting = _pair(servers)
    stored = _measure(_request(alone, drafting))
    assert stored.meta.engine == serving.RUNNING
    assert [(run.sample.status, run.error) for run in stored.current] == [(Status.OK, None)] * 4
    target, drafted = arms.group(stored)
    assert (target.role, drafted.role) == (Role.TARGET, Role.DRAFTING)
    assert (target.draft_size, drafted.draft_size) == (None, 3)
    assert target.acceptance is None
    assert drafted.gain is not None
    acceptance = drafted.acceptance
    assert acceptance.n_drafted == 3 * (acceptance.n_rounds or 0) > 0
    assert acceptance.by_position == pytest.approx((acceptance.accept_rate,) * 3)
    repeats = [run.repeat for run in stored.current]
    assert repeats == sorted(repeats)  # both servers before the next repeat
    assert all(len(fake.completions) >= 2 * 6 for fake in (alone, drafting))
    assert {body["prompt"] for body in alone.completions} == {"one", "two"}
    assert all(run.text_identical in {True, None} for run in stored.current)
    text = overview.overview(stored, "table")
    where = f"{MODEL} on vLLM 0.11.0 at"
    for words in (
        "Engine: running (servers that ran already, as their clients see them).",
        f"Target alone: {where} {alone.url}, not drafting, by its own account.",
        f"Drafting: {where} {drafting.url}, drafting γ = 3, by its own account.",
        *("This is the client's view", "from the server's /metrics", "[95 % interval over loads]"),
    ):
        assert words in text
    assert "1 thread" not in text
    assert "llama.cpp" not in text


def _asked_again(*starts: str | None, software: str | None = None, tps: float = 40.0) -> ResultSet:
    """Two servers, of which drafting is 1.5 times as fast; a repeat for each start of theirs."""
    alone = Endpoint(url="http://127.0.0.1:8001", model="m", software=software, drafts=False)
    runs: list[RunResult] = []
    for repeat, start in enumerate(starts):
        both = [replace(alone, start=start), replace(alone, url="http://127.0.0.1:8002", start=start)]
        servers = RunningServers(alone=both[0], drafting=replace(both[1], drafts=True))
        for role, factor in ((Role.TARGET, 1.0), (Role.DRAFTING, 1.5)):
            speed = tps * factor * (1 + 0.01 * (repeat % 3)) + 0.1 * repeat
            made = values.run(role, repeat=repeat, tps=speed)
            own = servers if role is Role.DRAFTING else servers.target_alone
            runs.append(replace(made, spec=replace(made.spec, servers=own), engine="running", load=len(runs)))
    stored = values.bench(*runs)
    return replace(stored, meta=replace(stored.meta, engine="running"))


def _judgement(stored: ResultSet) -> SpeedJudgement:
    judged = arms.group(stored)[1].judgement
    assert judged is not None
    return judged


@pytest.mark.parametrize("start", [None, "1"])
def test_a_server_is_one_load_however_often_it_is_asked(start: str | None) -> None:
    stored = _asked_again(*[start] * 6)
    judged = _judgement(stored)
    assert (judged.loads, judged.verdict) == (1, SpeedVerdict.ESTIMATE)
    text = overview.overview(stored, "table")
    assert "Estimate, not a verdict: drafting at http://127.0.0.1:8002 has 1.50× [1.3" in text
    assert "The interval assumes that loads differ by 5 % (one standard deviation)" in text
    assert "name three servers of each kind (--url and --url-drafting three times)" in text
    assert " estimate " in overview.overview(stored, "md")


@pytest.mark.parametrize("repeats", [1, 2])
def test_more_repeats_are_not_said_to_decide_what_loads_would(repeats: int) -> None:
    text = overview.overview(_asked_again(*[None] * repeats), "table")
    assert "More runs would decide it" not in text
    assert "would probably decide it" not in text
    assert "For a verdict, name three servers of each kind" in text


def test_a_server_that_was_started_again_is_another_load() -> None:
    judged = _judgement(_asked_again("1", "1", "2", "2", "3", "3"))
    assert (judged.loads, judged.verdict) == (3, SpeedVerdict.FASTER)
    assert _judgement(_asked_again("1", "1", "2", "2")).verdict is SpeedVerdict.ESTIMATE


@pytest.mark.parametrize("software", ["vLLM", "SGLang", "llama-server", "other"])
def test_a_server_tells_its_starts(servers: ExitStack, software: str) -> None:
    fake = _start(servers, FakeServer(software=software))
    first = server.describe_server(fake.url, None)
    assert first.start == server.describe_server(fake.url, None).start is not None
    fake.start = "1764000123.0"
    second = server.describe_server(fake.url, None)
    assert first.start != second.start
    assert first == second  # it is no part of what a run measures
    keys = [
        replace(values.spec(), servers=RunningServers(alone=endpoint)).key for endpoint in (first, second)
    ]
    assert keys[0] == keys[1]
    fake.start = ""
    assert server.describe_server(fake.url, None).start is None


def test_sessions_of_servers_that_were_not_started_again_are_one() -> None:
    def side(*starts: str | None, factor: float) -> list[ResultSet]:
        return [_asked_again(start, start, tps=factor * (40 + 0.1 * n)) for n, start in enumerate(starts)]

    fresh = comparing.compare(side("1", "2", "3", factor=1.0), side("4", "5", "6", factor=1.2))
    assert fresh.rows[0].change.verdict is SpeedVerdict.FASTER
    for starts in (("1", "1", "1"), (None, None, None), ("1", "2", "2")):
        again = comparing.compare(side(*starts, factor=1.0), side(*starts, factor=1.2))
        assert again.rows[0].change.verdict is SpeedVerdict.ESTIMATE
        with pytest.raises(InconclusiveError):
            guarding.guard(again, 0.02)


def test_servers_that_are_named_several_times_are_loads(servers: ExitStack) -> None:
    pairs = [_pair(servers) for _ in range(3)]
    urls = [tuple(fake.url for fake in side) for side in zip(*pairs, strict=True)]
    asked = _request(*pairs[0]).replace(url=urls[0], url_drafting=urls[1], repeats=4)
    stored = _measure(asked)
    _, drafted = arms.group(stored)
    assert (drafted.gain.components.loads, drafted.gain.gap) == (3, None)
    assert {run.argv[1].rpartition("/v1/")[0] for run in stored.current} == {*urls[0], *urls[1]}
    with pytest.raises(GgufspecError, match="--url names 3 servers and --url-drafting 2"):
        api.prepare(asked.replace(url_drafting=urls[1][:2]))


@pytest.mark.parametrize("software", ["SGLang", "llama-server"])
def test_acceptance_is_what_the_server_tells(servers: ExitStack, software: str) -> None:
    alone, drafting = _pair(servers, software)
    stored = _measure(_request(alone, drafting))
    _, drafted = arms.group(stored)
    assert drafted.acceptance.mean_accepted_length == pytest.approx(2.5)  # 1 + 9 accepted in 6 rounds
    if software == "llama-server":
        assert not any(body["cache_prompt"] for body in drafting.completions)
        build = stored.meta.build
        assert (build.version, build.commit, build.path) == ("b9976", "1a2b3c4", alone.url)
        assert all(run.sample.prompt_tps == pytest.approx(100.0) for run in stored.current)


@pytest.mark.parametrize("sees", [True, False, None])
def test_images_are_sent_unless_the_server_reads_none(servers: ExitStack, sees: bool | None) -> None:
    told = {} if sees is None else {"/props": json.dumps({"modalities": {"vision": sees}})}
    alone = _start(servers, FakeServer(software="llama-server", answers=told))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Who is this?"}, image]}]
    asked = _request(alone).replace(prompt=[ggufspec.Prompt(id="photo", messages=messages)], repeats=1)
    if sees is False:
        with pytest.raises(GgufspecError, match=r"prompts have images, and the server at .* reads none"):
            _measure(asked)
        return
    _measure(asked)
    assert {json.dumps(body["messages"]) for body in alone.completions} == {json.dumps(messages)}


@pytest.mark.parametrize(("turns", "forgets"), [("warm", False), ("warm", True), ("cold", False)])
def test_later_turns_are_cached(servers: ExitStack, tmp_path: Path, turns: str, forgets: bool) -> None:
    talk = tmp_path / "talk.toml"
    talk.write_text(
        'kind = "messages"\n'
        '[[prompt]]\nid = "talk"\ntext = "tell me a tale of the sea"\nfollowups = ["go on", "and then"]\n'
        '[[prompt]]\nid = "single"\ntext = "name one bird that sings at night"\n'
    )
    alone, drafting = _pair(servers, "llama-server")
    alone.forgets = drafting.forgets = forgets
    asked = _request(alone, drafting).replace(prompt=(), prompt_file=(talk,), turns=turns, system="Be brief")
    session = api.prepare(asked)
    begin = "the conversation so far in the cache" if turns == "warm" else "an empty cache"
    assert f"turns: later turns of conversations begin with {begin}" in session.notes
    stored = _measure(asked)
    last = max((body["messages"] for body in drafting.completions), key=len)
    assert [message["role"] for message in last] == ["system", *["user", "assistant"] * 2, "user"]
    assert last[2]["content"] == last[4]["content"]  # the target's own answers, in every arm
    warm = [len(body["messages"]) > 2 for body in drafting.completions if body["cache_prompt"]]
    assert warm if turns == "warm" else not warm
    assert all(warm)
    rows = frames.turns(stored)
    assert set(rows["turn"]) == {1, 2, 3}
    later = rows[(rows["turn"] > 1) & (rows["role"] == "drafting")]
    assert (later["cached_tokens"] > 0).all() == (turns == "warm" and not forgets)
    assert later["accept_rate"].between(0.4, 0.6).all()
    assert later["speedup"].notna().all()
    assert ("cache-lost" in review.warnings(stored)) == forgets
    assert "cached tokens" in (details.parts(stored, "turn", "md") or "")


def test_one_server_has_no_speed_up(servers: ExitStack) -> None:
    asked = _request(_start(servers))
    none = "speed-up: none, because one server is measured"
    assert any(note.startswith(none) for note in api.prepare(asked).notes)
    stored = _measure(asked.replace(repeats=4, parallel=2))
    (target,) = arms.group(stored)
    assert (target.role, target.gain) == (Role.TARGET, None)
    assert "One server was measured, so there is no speed-up." in overview.overview(stored, "table")
    assert target.traffic.ttft_s
    assert all(estimate.lo is None for estimate in target.traffic.ttft_s.values())


@pytest.mark.parametrize("option", ["url", "url_drafting"])
def test_one_server_that_drafts_has_an_acceptance_and_no_speed_up(servers: ExitStack, option: str) -> None:
    drafting = _start(servers, FakeServer(gamma=3))
    urls: dict[str, Any] = {"url": None, option: drafting.url}
    stored = _measure(_request(drafting).replace(**urls))
    (arm,) = arms.group(stored)
    assert (arm.role, arm.gain, arm.acceptance is None) == (Role.DRAFTING, None, False)
    unknown = "The target alone was not measured, so the speed-up is not known."
    assert unknown in overview.overview(stored, "table")


def test_a_server_that_counts_no_drafts_has_no_acceptance(servers: ExitStack) -> None:
    alone, drafting = (
        _start(servers, FakeServer(software="other", gamma=gamma, has_metrics=False)) for gamma in (0, 3)
    )
    stored = _measure(_request(alone, drafting))
    _, drafted = arms.group(stored)
    assert drafted.gain is not None
    assert (drafted.acceptance, drafted.draft_size) == (None, None)
    assert all(run.sample.n_rounds is None for run in stored.current if run.spec.role is Role.DRAFTING)


def test_users_rates_and_depths_work_as_elsewhere(servers: ExitStack, tmp_path: Path) -> None:
    alone, drafting = _pair(servers)
    book = tmp_path / "book.txt"
    book.write_text(" ".join(f"word{number}" for number in range(50)))
    asked = _request(alone, drafting).replace(parallel=(1, 2), depth=(0, 10), context_file=book, repeats=1)
    session = api.prepare(asked)
    traffics = [block.arms[0].traffic for block in session.suite.blocks]
    assert [(sent.users, sent.depth) for sent in traffics if sent] == [(1, 0), (2, 0), (1, 10), (2, 10)]
    deep = traffics[-1]
    assert {len(prompt.text.split()) for prompt in deep.prompts} == {11}
    rated = _request(alone).replace(rate=50.0, parallel=2, slo=ServiceLevel(ttft_s=5.0), repeats=1)
    (arm,) = arms.group(_measure(rated))
    assert arm.traffic.goodput is not None


def test_what_a_server_lacks_is_named(servers: ExitStack) -> None:
    alone = _start(servers, FakeServer(software="llama-server", answers={"/tokenize": "no"}))
    with pytest.raises(GgufspecError, match="has no /tokenize"):
        api.prepare(_request(alone).replace(depth=10))
    notes = api.prepare(_request(alone).replace(parallel=(1, 5))).notes
    assert f"server: {alone.url} answers 2 requests at once, so 3 of 5 users wait" in notes


@pytest.mark.parametrize(
    ("alone", "drafting", "status", "reason"),
    [
        ({"software": "other", "counts": False}, None, Status.FAILED, "does not report how many tokens"),
        ({"gamma": 3, "answers": {"/slots": "hidden"}}, None, Status.FAILED, "the server drafts"),
        ({}, {"answers": {"/slots": "hidden"}}, Status.DRAFTING_INACTIVE, "reported no drafted tokens"),
    ],
)
def test_servers_that_say_other_than_they_do_are_failed_runs(
    servers: ExitStack, alone: dict[str, Any], drafting: dict[str, Any] | None, status: Status, reason: str
) -> None:
    both = [
        None if one is None else _start(servers, FakeServer(**{"software": "llama-server"} | one))
        for one in (alone, drafting)
    ]
    runs = _measure(_request(*both).replace(repeats=1)).current
    *others, run = sorted(runs, key=lambda run: run.spec.role is Role.DRAFTING)
    assert (run.sample.status, [one.sample.status for one in others]) == (status, [Status.OK] * len(others))
    assert reason in (run.error or "")


FAULTS = {
    "@busy": RequestOutcome.REFUSED,
    "@unavailable": RequestOutcome.UNAVAILABLE,
    "@cut": RequestOutcome.CUT_OFF,
    "@garbage": RequestOutcome.UNREADABLE,
    "@error": RequestOutcome.SERVER_ERROR,
}


def test_requests_that_fail_have_an_outcome(servers: ExitStack) -> None:
    alone = _start(servers)
    (run,) = _measure(_request(alone).replace(prompt=("fine", *FAULTS), repeats=1)).current
    assert run.sample.status is Status.OK
    asked = [prompt.text for prompt in run.spec.traffic.prompts]
    outcomes = {asked[request.prompt]: request.outcome for request in run.sample.traffic.requests}
    assert outcomes == {"fine": RequestOutcome.OK, **FAULTS}
    assert "requests-failed" in run.doubts
    assert not {"busy-machine", "threads-above-free-cores"} & {*run.doubts}  # the server is none of these


def test_nobody_waits_for_a_server_that_hangs(servers: ExitStack) -> None:
    alone = _start(servers)
    started = time.monotonic()
    (run,) = _measure(_request(alone).replace(prompt=("fine", "@hang"), repeats=1, timeout=1.0)).current
    assert time.monotonic() - started < 30
    assert run.sample.status is Status.TIMED_OUT


def test_other_clients_give_a_warning(servers: ExitStack) -> None:
    alone = _start(servers)
    (quiet,) = _measure(_request(alone).replace(repeats=1)).current
    assert "other-clients" not in quiet.doubts
    stop = threading.Event()

    def use() -> None:
        while not stop.is_set():
            alone.count(generated=50)
            time.sleep(0.005)

    other = threading.Thread(target=use)
    other.start()
    try:
        (run,) = _measure(_request(alone).replace(repeats=1)).current
    finally:
        stop.set()
        other.join()
    assert "other-clients" in run.doubts


def test_texts_that_differ_are_not_judged_by_a_server_that_cannot_say(servers: ExitStack) -> None:
    alone = _start(servers)
    drafting = _start(servers, FakeServer(gamma=3, word="other "))
    stored = _measure(_request(alone, drafting))
    _, drafted = arms.group(stored)
    assert drafted.gain is not None
    assert set(drafted.compared.values()) == {False}
    text = overview.overview(stored, "table")
    assert "warning texts-not-judged" in text
    assert f"{alone.url} is not llama-server" in text
    assert "warning text-differs" not in text


def _likely(*logprobs: float) -> dict[str, Any]:
    """What the plain server finds likely: its own first word, the drafting server's, and a third one."""
    pieces = (fake_server.WORDS[0], "other ", "unlike")
    top = [
        {"id": token, "token": piece, "bytes": list(piece.encode()), "logprob": logprob}
        for token, (piece, logprob) in enumerate(zip(pieces, logprobs, strict=True))
    ]
    return {"completion_probabilities": [{"top_logprobs": top}]}


@pytest.mark.parametrize(
    ("logprobs", "verdict", "warned"),
    [
        ((-0.7, -0.8, -6.0), TextVerdict.NEAR_TIE, "near-ties"),
        ((-0.1, -5.0, -6.0), TextVerdict.DIVERGENCE, "text-differs"),
        ((-5.0, -4.9, -0.1), None, "texts-not-judged"),  # it reads another text than it wrote
    ],
)
def test_the_plain_server_is_asked_where_texts_part(
    servers: ExitStack, logprobs: tuple[float, ...], verdict: TextVerdict | None, warned: str
) -> None:
    answers = {"/completion": _likely(*logprobs), "/apply-template": {"prompt": "<user>one<assistant>"}}
    alone = _start(servers, FakeServer(software="llama-server", answers=answers))
    drafting = _start(servers, FakeServer(software="llama-server", gamma=3, word="other "))
    stored = _measure(_request(alone, drafting).replace(prompt=("one",), repeats=1, chat=True))
    (drafted,) = [run for run in stored.current if run.spec.role is Role.DRAFTING]
    assert (drafted.difference and drafted.difference.verdict) == verdict
    assert f"warning {warned}" in overview.overview(stored, "table")
    asked = [body for path, _, body in alone.requests if path == "/completion"]
    assert {body["prompt"] for body in asked} == {"<user>one<assistant>"}
    assert not [path for path, _, _ in drafting.requests if path == "/completion"]


def test_the_distribution_of_sampled_texts_is_refused_by_name(servers: ExitStack) -> None:
    stored = _measure(_request(*_pair(servers, "llama-server")).replace(temp=0.8, repeats=1))
    refused = "only llama.cpp's library can test the distribution of sampled texts"
    assert refused in overview.overview(stored, "table")


def test_a_bench_goes_on_where_it_was_interrupted(servers: ExitStack) -> None:
    alone = _start(servers)
    words = ("bench", "--url", alone.url, "-p", "one", "-n", "16", "--repeats")
    shell.done(*words, "1", "--name", "mine")
    shell.done(*words, "2", "--resume", "mine")
    assert len(results.load("mine").current) == 2


def test_keys_are_sent_and_never_stored(
    servers: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    other = "k-2718281828459045"
    alone = _start(servers, FakeServer(key=KEY))
    drafting = _start(servers, FakeServer(key=other, gamma=3))
    files = tmp_path / "one", tmp_path / "two"
    for file, key in zip(files, (KEY, other), strict=True):
        file.write_text(key)
    named = [word for file in files for word in ("--api-key-file", str(file))]
    words = ("bench", "--url", alone.url, "--url-drafting", drafting.url, "-p", "one", "-n", "16", "-r", "1")
    done = shell.done(*words, *named, "--name", "mine")
    monkeypatch.setenv(server.KEY_VARIABLE, KEY)
    assert shell.here(*words[:3], *words[5:]).returncode == 0
    sent = {headers.get("Authorization") for _, headers, _ in alone.requests}
    assert sent == {f"Bearer {KEY}"}
    stored = b"".join(file.read_bytes() for file in (home / "data").rglob("*") if file.is_file())
    assert b"POST" in stored
    for key in (KEY, other):
        assert key.encode() not in stored
        assert key not in done.stdout + done.stderr
    assert KEY not in repr(api.prepare(_request(alone).replace(api_key_file=files[0])))


def test_a_dry_run_sends_no_prompt(servers: ExitStack) -> None:
    alone, drafting = _pair(servers)
    words = ("--url", alone.url, "--url-drafting", drafting.url, "-p", "x", "--dry-run")
    shell.done("sweep", *words)
    said = shell.here("bench", *words).stdout.splitlines()
    assert said == [f"POST {fake.url}/v1/completions" for fake in (alone, drafting)]
    assert not alone.completions


# What is refused


def test_servers_must_be_what_they_are_named_as(servers: ExitStack, tmp_path: Path) -> None:
    alone, drafting = _pair(servers)
    unknown = _start(servers, FakeServer(software="other", has_metrics=False))
    small, large = (
        _start(servers, FakeServer(software="llama-server", gamma=gamma, n_params=n))
        for gamma, n in ((0, 1000), (3, 2000))
    )
    for pair, refused in (
        ((drafting, _start(servers, FakeServer(gamma=3))), "drafts, so it does not show the target alone"),
        ((_start(servers), alone), "does not draft"),
        ((unknown, unknown), "is named twice"),
        ((small, large), r"different targets: .* 1,000 weights, .* 2,000"),
    ):
        with pytest.raises(GgufspecError, match=refused):
            api.prepare(_request(*pair))
    with pytest.raises(GgufspecError, match="2 key files do not go with 1 server"):
        api.prepare(_request(alone).replace(api_key_file=(tmp_path / "a", tmp_path / "b")))


@pytest.mark.parametrize(
    "words",
    [
        *(("--ngl", "45"), ("--draft", "3"), ("--draft-model", "d.gguf"), ("--target", "t"), ("-md", "x")),
        *(("--threads", "4"), ("--ctx", "512"), ("--kv-type", "q8_0"), ("--loads", "2"), ("-t", "4")),
        *(("--llama", "x"), ("--method", "ngram-mod"), ("--synthetic-accept", "0.7"), ("--force",)),
        *(("-fa", "on"), ("--device", "none"), ("--token", "x"), ("--tuned", "last"), ("--warmup", "3")),
        *(("--pair", "demo"), ("--engine", "server")),
    ],
)
def test_options_that_cannot_apply_are_refused_by_name(words: tuple[str, ...]) -> None:
    done = shell.here("bench", "--url", "http://127.0.0.1:1", *words)
    assert done.returncode == 2
    shown = words[0] if words[0].startswith("--") else "-"
    assert f"a server that runs already (--url) decides {shown}" in done.stderr
    assert "leave one of them out" in done.stderr


def test_settings_of_other_benches_do_not_matter(servers: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _start(servers)
    for key, value in {"PAIR": "demo", "ENGINE": "inprocess", "THREADS": "2"}.items():
        monkeypatch.setenv(f"GGUFSPEC_{key}", value)
    shell.done("bench", "--url", alone.url, "-p", "one", "-n", "16", "-r", "1")


# Comparing


def test_benches_of_servers_are_compared_by_what_they_report(servers: ExitStack) -> None:
    alone, other, larger = (
        _start(servers, FakeServer(software="llama-server", n_params=n)) for n in (1000, 1000, 2000)
    )
    first, second = _measure(_request(alone)), _measure(_request(other))
    compared = comparing.compare(first, second)
    assert len(compared.rows) == 1
    assert compared.is_reported
    told = tuple(f"llama-server b9976-1a2b3c4 at {fake.url}" for fake in (alone, other))
    assert compared.differences["target server"] == told
    assert "No checksum of their files is known" in comparison.page(compared).text()
    for unlike in (_request(other).replace(prompt=("one", "three")), _request(larger)):
        with pytest.raises(ResultsError, match="no arm in common"):
            comparing.compare(first, _measure(unlike))
    with pytest.raises(ResultsError, match=r"no arm in common|another text"):
        comparing.compare(first, values.whole_bench())  # of a file


def test_every_page_shows_a_bench_of_servers(servers: ExitStack, tmp_path: Path) -> None:
    name = _measure(_request(*_pair(servers))).meta.id
    for options in ((), ("--all",), ("--runs",), ("-o", "json"), ("-o", "table", "--plot")):
        shell.done("show", name, *options)
    shell.done("why", name)
    shell.done("report", name, "--out", str(tmp_path / "report.html"))


# Ctrl-C


def test_ctrl_c_ends_within_two_seconds(servers: ExitStack) -> None:
    alone = _start(servers, FakeServer(token_s=0.05))
    session = api.prepare(_request(alone).replace(parallel=4, n_predict=400, repeats=1))
    identified = replace(session, files=())
    store = api.begin(identified, command=("test",))
    sent: list[float] = []

    def interrupt() -> None:
        shell.wait_until(lambda: len(alone.completions) >= 4)
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in api.record(identified, store):
            pass
    assert time.monotonic() - sent[0] < 2
    thread.join()
    (log,) = (store.folder / "logs").glob("*.out")
    records = [*serving.decode_records(log.read_text().splitlines(keepends=True))]
    assert [record.outcome for record in records] == [RequestOutcome.STOPPED] * 4
