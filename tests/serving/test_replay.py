"""Recorded requests: which logs are read, what is left out, and when they are sent again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import prompts, serving
from ggufspec.analysis import arms
from ggufspec.domain import Prompt, RequestOutcome, ServiceLevel, Status, Traffic
from ggufspec.errors import GgufspecError
from ggufspec.measure import api, prepare_session
from ggufspec.options import BenchOptions
from ggufspec.prompts import Message, RecordedRequest
from ggufspec.report import frames
from ggufspec.report.text import overview
from ggufspec.units import format_duration
from tests.support import fake_server
from tests.support.fake_server import FakeServer

HELLO = [{"role": "user", "content": "Hello"}]


def _write(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    file = tmp_path / "requests.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def _read(tmp_path: Path, *rows: dict[str, Any]) -> tuple[RecordedRequest, ...]:
    return prompts.read_recording(_write(tmp_path, *rows)).requests


# What is read


@pytest.mark.parametrize(
    "row",
    [
        {"timestamp": 1732233600.5, "messages": HELLO},
        {"timestamp": "1732233600.5", "body": {"messages": HELLO, "model": "m"}},
        {"time": 1732233600500, "request": {"messages": HELLO}},
        {"ts": 1732233600500000, "request_body": json.dumps({"messages": HELLO})},
        {"created": 1732233600500000000, "params": {"messages": HELLO}},
        {"created_at": "2024-11-22T00:00:00.500Z", "messages": HELLO},
        {"start_time": "2024-11-22T01:00:00.5+01:00", "messages": HELLO},
        {"date": "2024-11-22 00:00:00.5", "messages": HELLO},
        {"timestamp": 1732233600.5, "headers": {"Authorization": "Bearer x"}, "request": {"messages": HELLO}},
    ],
)
def test_a_request_is_read_in_every_form(tmp_path: Path, row: dict[str, Any]) -> None:
    first = {"timestamp": 1732233600, "messages": HELLO}
    before, read = _read(tmp_path, first, row)
    assert before == RecordedRequest(at_s=0.0, turns=(Message("user", "Hello"),))
    assert read == replace(before, at_s=0.5)


def test_requests_are_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    rows = [{"arrival_s": at_s, "prompt": f"at {at_s}"} for at_s in (3, 0, 1.5)]
    assert [(one.at_s, one.text) for one in _read(tmp_path, *rows)] == [
        (0, "at 0"),
        (1.5, "at 1.5"),
        (3, "at 3"),
    ]


def test_messages_become_turns_with_a_system_prompt(tmp_path: Path) -> None:
    messages = [
        {"role": "developer", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": " two"}]},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": "Four"},
        {"role": "user", "content": "Five"},
        {"role": "assistant", "content": "Begun an"},
    ]
    (read,) = _read(tmp_path, {"timestamp": 1, "messages": messages})
    assert read.system == "Be brief"
    assert read.turns == (
        Message("user", "One two\n\nthree"),
        Message("assistant", "Four"),
        Message("user", "Five"),
    )


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, None),
        ({"max_tokens": 40}, 40),
        ({"max_completion_tokens": 50, "max_tokens": 40}, 50),
        ({"n_predict": -1}, None),
        ({"max_tokens": 40, "usage": {"completion_tokens": 7}}, 7),
        ({"max_tokens": 40, "response": {"body": {"usage": {"output_tokens": 8}}}}, 8),
    ],
)
def test_answers_are_as_long_as_they_were(tmp_path: Path, fields: dict[str, Any], tokens: int | None) -> None:
    (read,) = _read(tmp_path, {"timestamp": 1, "prompt": ["Once"], **fields})
    assert (read.text, read.answer_tokens) == ("Once", tokens)


@pytest.mark.parametrize(
    "body",
    [
        {"input": "embed me"},
        {"prompt": [1, 2, 3]},
        {"prompt": ""},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "Hello"}]},
        {"messages": [{"role": "tool", "content": "3"}]},
        {"messages": [{"role": ["user"], "content": "3"}]},
        {"messages": [{"role": "user", "content": "Weather?"}], "functions": [{"name": "f"}], "stop": "."},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user"}]},
    ],
)
def test_requests_that_cannot_be_sent_again_are_left_out(tmp_path: Path, body: dict[str, Any]) -> None:
    file = _write(tmp_path, {"timestamp": 1, "prompt": "Once"}, {"timestamp": 2, **body})
    recording = prompts.read_recording(file)
    assert (len(recording.requests), recording.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"timestamp": 1, "input": "x"}\n', "no requests that can be sent again"),
        ('{"timestamp": 1, "prompt": "x"}\n{half\n', "requests.jsonl:2: this is not JSON"),
        ('{"timestamp": 1, "prompt": "x"}\n\n[1]\n', "requests.jsonl:3: this is not a JSON object"),
        ('{"prompt": "x"}\n', "requests.jsonl:1: the request has no time of arrival"),
        ('{"timestamp": true, "prompt": "x"}\n', "no time of arrival"),
        ('{"timestamp": "soon", "prompt": "x"}\n', "no time of arrival"),
        (f'{{"timestamp": 1{"0" * 400}, "prompt": "x"}}\n', "no time of arrival"),  # too large for a float
        ("", "has no requests"),
        ("nothing of the kind\n", "has no requests"),
        (
            '{"ts": 1, "prompt": "x"}\n{"ts": 1, "messages": [{"role": "user", "content": "x"}]}\n',
            "both chats and texts",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(content)
    with pytest.raises(GgufspecError, match=problem):
        prompts.read_recording(file)


@pytest.mark.parametrize("read", [prompts.read_recording, prompts.read_conversation])
def test_files_that_are_not_there_are_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(GgufspecError, match="cannot read"):
        read(tmp_path / "none.json")


LOG = """\
0.00.100.000 I srv    load_model: loading model
0.00.575.329 D que          post: new task, id = 0/1, front = 0
0.00.575.400 D que          post: new task, id = 1, front = 0
0.00.585.925 D slot launch_slot_: id  1 | task -1 | launching slot : {"id":1,"n_ctx":256}
0.00.585.994 I slot launch_slot_: id  1 | task 0 | processing task, is_child = 0
0.00.600.000 D que          post: new task, id = 5/1, front = 0
0.00.601.000 I slot launch_slot_: id  0 | task 5 | processing task, is_child = 0
0.00.620.005 I srv  log_server_r: done request: POST /v1/completions 127.0.0.1 200
0.00.620.010 D srv  log_server_r: request:  {"prompt": "Streamed", "max_tokens": 40, "stream": true}
0.00.620.011 D srv  log_server_r: response:
0.01.078.266 D que          post: new task, id = 13/1, front = 0
0.01.361.931 I slot      release: id  1 | task 0 | stop processing: n_tokens = 9, truncated = 0
0.01.362.942 I slot launch_slot_: id  1 | task 13 | processing task, is_child = 0
0.01.366.150 I srv  log_server_r: done request: POST /v1/completions 127.0.0.1 200
0.01.366.151 D srv  log_server_r: request:  {
  "prompt": "Answered as a whole"
}
0.01.366.158 D srv  log_server_r: response: {"choices":[{"text":" Look","index":0}]}
0.01.400.151 D srv  log_server_r: request:  {"content": "of another endpoint"}
0.01.409.151 D srv  log_server_r: request:  {"prompt": "Waited", "stream": true}
0.02.209.892 I slot      release: id  0 | task 5 | stop processing: n_tokens = 46, truncated = 0
"""
"""Lines as llama-server b9466 writes them with --verbose."""


def test_a_log_of_llama_server_has_requests_and_arrivals(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_text(LOG)
    assert prompts.read_recording(file).requests == (
        RecordedRequest(at_s=0.0, text="Answered as a whole"),
        RecordedRequest(at_s=0.024671, text="Streamed", answer_tokens=40),
        RecordedRequest(at_s=0.502937, text="Waited"),
    )


def test_a_log_without_texts_or_times_is_refused_with_the_fix(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    lines = LOG.splitlines(keepends=True)
    for content in (
        "".join(line for line in lines if " D " not in line),
        "".join(line for line in lines if "log_server_r" not in line),  # as b11312 writes it with --verbose
        re.sub(r"^0\S+ [ID] ", "", LOG, flags=re.MULTILINE),
    ):
        file.write_text(content)
        with pytest.raises(GgufspecError, match="has no requests with their texts and times") as caught:
            prompts.read_recording(file)
        assert all(word in (caught.value.hint or "") for word in ("b9466", "JSONL", "--log-timestamps"))


# Conversations before prompts

CHAT = [
    {"role": "system", "content": "Be brief"},
    {"role": "user", "content": "a b c"},
    {"role": "assistant", "content": "d e f g"},
    {"role": "user", "content": "h i"},
    {"role": "assistant", "content": "j k l"},
]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"messages": CHAT}, indent=1),
        json.dumps({"messages": CHAT[:3]}) + "\n" + json.dumps({"messages": CHAT[3:]}) + "\n",
    ],
)
def test_a_conversation_is_read_without_system_prompts(tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(content)
    assert prompts.read_conversation(file) == tuple(
        Message(message["role"], message["content"]) for message in CHAT[1:]
    )
    assert prompts.read_conversation(tmp_path / "book.txt") is None


@pytest.mark.parametrize("content", ["", "[1]", "{}", '{"messages": 3}', '{"messages": [{"role": "x"}]}'])
def test_other_json_is_no_conversation(tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(content)
    with pytest.raises(GgufspecError, match=r"conversation|no messages"):
        prompts.read_conversation(file)


@pytest.mark.parametrize(
    ("depth", "before"),
    [
        (2, [("user", "a b\n\nAsk")]),
        (5, [("user", "a b c"), ("assistant", "d e"), ("user", "Ask")]),
        (8, [("user", "a b c"), ("assistant", "d e f g"), ("user", "h\n\nAsk")]),
    ],
)
def test_conversations_precede_prompts(tmp_path: Path, depth: int, before: list[tuple[str, str]]) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(json.dumps({"messages": CHAT}))
    with fake_server.serve(FakeServer()) as fake:
        asked = BenchOptions(
            url=fake.url, prompt=("Ask",), chat=True, depth=depth, context_file=file, system="Hm"
        )
        (block,) = api.prepare(asked).suite.blocks
        with pytest.raises(GgufspecError, match="needs a chat template"):
            api.prepare(asked.replace(chat=None, system=None))
        with pytest.raises(GgufspecError, match="has 12 tokens, fewer than a depth of 13"):
            api.prepare(asked.replace(depth=13))
    traffic = block.arms[0].traffic
    (request,) = (prompt.request for prompt in traffic.prompts)
    said = [(message["role"], message["content"]) for message in request.messages]
    assert said == [("system", "Hm"), *before]


# What is sent


def test_recorded_requests_arrive_once_and_in_time() -> None:
    alike = Traffic(users=2, prompts=tuple(Prompt(id=str(number), text="") for number in range(5)))
    sent = replace(alike, arrivals=(0, 1, 2, 3, 8), answer_tokens=(4,) * 5)
    assert (sent.is_open, sent.mean_rate, sent.tokens_of(99)) == (True, 0.5, (4,) * 5)
    assert alike.tokens_of(99) == (99,) * 5


def _rows(n: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        {"arrival_s": number / 20, "messages": [{"role": "user", "content": f"Ask {number}"}], **fields}
        for number in range(n)
    ]


def test_a_running_server_gets_the_recorded_chats(tmp_path: Path) -> None:
    rows = _rows(12, max_tokens=6)
    rows[0]["messages"].insert(0, {"role": "system", "content": "Be brief"})
    file = _write(tmp_path, *rows)
    with fake_server.serve(FakeServer()) as fake:
        asked = BenchOptions(url=fake.url, replay=file, n_predict=16, repeats=1, slo=ServiceLevel(ttft_s=9.0))
        notes = api.prepare(asked).notes
        stored = ggufspec.load(ggufspec.bench(asked).meta.id)
        bodies = fake.completions
    duration = format_duration(11 / 20)
    assert f"replay: 12 requests over {duration}; each run takes at least as long" in notes
    (run,) = stored.current
    assert run.sample.status is Status.OK, run.error
    assert [each.outcome for each in run.sample.traffic.requests] == [RequestOutcome.OK] * 12
    assert {each.tokens for each in run.sample.traffic.requests} == {6}
    assert bodies[0]["messages"] == rows[0]["messages"]
    assert {body["max_tokens"] for body in bodies} == {6}
    assert sorted(body["messages"][-1]["content"] for body in bodies) == sorted(
        row["messages"][-1]["content"] for row in rows
    )
    lines = (stored.folder / "logs" / f"{run.log}.out").read_text().splitlines(keepends=True)
    for record in serving.decode_records(lines):
        assert record.sent_s >= record.number / 20 - 0.001  # never early
    (arm,) = arms.group(stored)
    assert arm.traffic.goodput is not None
    text = overview.overview(stored)
    assert "12 recorded requests × 1 repeat, up to 16 tokens each" in text
    assert "Requests arrive as they were recorded" in text


@pytest.mark.parametrize("turns", [None, "cold"])
def test_a_recorded_session_of_an_agent_goes_on_in_the_cache(tmp_path: Path, turns: str | None) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    first = [{"role": "user", "content": "Look around"}]
    second = [*first, {"role": "assistant", "tool_calls": [call]}]
    second += [{"role": "tool", "tool_call_id": "1", "content": "a door"}]
    third = [*second, {"role": "assistant", "content": "A door"}, {"role": "user", "content": "Open it"}]
    sent = (first, [{"role": "user", "content": "Look up"}], second, third)
    rows = [{"arrival_s": place / 5, "messages": chat, "tools": tools} for place, chat in enumerate(sent)]
    with fake_server.serve(FakeServer(software="llama-server")) as fake:
        asked = BenchOptions(
            url=fake.url, replay=_write(tmp_path, *rows), n_predict=8, repeats=1, turns=turns
        )
        stored = ggufspec.load(ggufspec.bench(asked).meta.id)
        bodies = fake.completions
    assert [body["messages"] for body in bodies] == list(sent)
    assert all(body["tools"] == tools for body in bodies)
    assert [body["cache_prompt"] for body in bodies] == [False, False, turns is None, turns is None]
    rows_of_turns = frames.turns(stored)
    assert list(rows_of_turns["turn"]) == ([1, 2, 3] if turns is None else [])


def test_more_slots_than_requests_still_have_a_window(tmp_path: Path) -> None:
    file = _write(tmp_path, *_rows(4))
    with fake_server.serve(FakeServer()) as fake:
        asked = BenchOptions(url=fake.url, replay=file, n_predict=16, repeats=1, parallel=8)
        (run,) = ggufspec.load(ggufspec.bench(asked).meta.id).current
    assert run.sample.status is Status.OK, run.error


def test_our_own_server_gets_recorded_texts(llama_server: Path, tmp_path: Path) -> None:
    rows = [
        {"arrival_s": number / 20, "prompt": f"Recorded {number}", "max_tokens": 9} for number in range(8)
    ]
    file = _write(tmp_path, *rows)
    asked = BenchOptions(
        engine="server", replay=file, draft=3, n_predict=16, repeats=1, threads=1, parallel=2
    )
    runs = ggufspec.load(ggufspec.bench(asked).meta.id).current
    for run in runs:
        assert run.sample.status is Status.OK, run.error
        assert len(run.sample.traffic.requests) == 8
    bodies = fake_server.requests(llama_server)
    assert {body["n_predict"] for body in bodies if str(body["prompt"]).startswith("Recorded ")} == {9}


@pytest.mark.usefixtures("llama_server")
def test_a_replay_needs_the_server_and_chats_its_template(tmp_path: Path) -> None:
    asked = BenchOptions(engine="server", replay=_write(tmp_path, *_rows(3)))
    with pytest.raises(GgufspecError, match="has no chat template"):
        prepare_session(asked)
    with pytest.raises(GgufspecError, match="neither several users"):
        prepare_session(asked.replace(engine=None))


@pytest.mark.usefixtures("llama_server")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("suite", "demo"), ("prompt", ("x",)), ("prompt_file", (Path("x"),)), ("per_category", 1)),
        *(("chat", True), ("system", "x"), ("rate", 2.0), ("depth", 10)),
    ],
)
def test_what_a_recording_decides_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    asked = BenchOptions(engine="server", replay=_write(tmp_path, {"timestamp": 1, "prompt": "x"}))
    with pytest.raises(GgufspecError, match=f"recorded requests decide --{field.replace('_', '-')}"):
        prepare_session(asked.replace(**{field: value}))
