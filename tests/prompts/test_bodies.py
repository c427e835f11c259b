"""Bodies of requests become prompts that ask for the same."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import ggufspec
from ggufspec import prompts, serving
from ggufspec.analysis.texts import is_valid
from ggufspec.domain import Prompt, Request
from ggufspec.errors import GgufspecError
from ggufspec.measure import texts
from ggufspec.options import BenchOptions

PROPERTIES = {"zone": {"type": "string"}, "area": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PROPERTIES}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
DOT = f"data:image/jpeg;base64,{base64.b64encode(b'a dot').decode()}"
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def _load(tmp_path: Path, *rows: dict[str, Any]) -> tuple[Prompt, ...]:
    file = tmp_path / "bodies.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return prompts.load(file).prompts


def _asked(prompt: Prompt) -> dict[str, Any]:
    return prompt.request.fields


def test_a_body_of_openais_package_keeps_what_changes_the_answer(tmp_path: Path) -> None:
    messages = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
        },
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
    ]
    body = {"model": "m", "messages": messages, "tools": [TOOL], "tool_choice": "auto", "temperature": 0.2}
    (prompt,) = _load(tmp_path, body | {"n": 1, "stream": True, "stop": None, "max_completion_tokens": 9})
    assert _asked(prompt) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
    }
    assert (prompt.is_chat, prompt.text) == (True, "Be brief.\n\nWeather?\n\nRain")


def test_a_schema_leaves_a_text_as_it_is_and_a_response_format_makes_it_a_chat(tmp_path: Path) -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    beside, chat = _load(
        tmp_path,
        {"prompt": "Go", "json_schema": SCHEMA},
        {"prompt": "Go", "response_format": response_format},
    )
    assert (beside.is_chat, beside.text, _asked(beside)) == (False, "Go", {"json_schema": SCHEMA})
    assert _asked(chat) == {
        "messages": [{"role": "user", "content": "Go"}],
        "response_format": response_format,
    }


def test_equal_requests_are_equal_and_the_order_of_properties_counts() -> None:
    swapped = SCHEMA | {"properties": dict(reversed(PROPERTIES.items()))}
    one = Request.of({"stop": ".", "json_schema": SCHEMA})
    same = Request.of({"json_schema": SCHEMA, "stop": "."})
    assert one == same
    assert hash(one) == hash(same)
    assert Request.of({"json_schema": SCHEMA}) != Request.of({"json_schema": swapped})


def test_toml_has_the_same_fields_as_tables_or_json(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        f"""
[[prompt]]
id = "a"
text = "Go"
json_schema = '{json.dumps(SCHEMA)}'

[[prompt]]
id = "b"
messages = [{{role = "system", content = "Be brief."}}, {{role = "user", content = "Go"}}]
chat_template_kwargs = {{enable_thinking = false}}
followups = ["And now?"]
"""
    )
    beside, chat = prompts.load(file).prompts
    assert _asked(beside) == {"json_schema": SCHEMA}
    assert _asked(chat)["chat_template_kwargs"] == {"enable_thinking": False}
    turns = prompts.PromptTurns(chat, None)
    turns.add_answer("<think>Hm.</think>Gone.")
    assert _asked(turns.made[1])["messages"][2:] == [
        {"role": "assistant", "content": "Gone."},
        {"role": "user", "content": "And now?"},
    ]


def test_an_image_is_a_data_url_or_in_toml_the_path_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "dot.jpg").write_bytes(b"a dot")
    file = tmp_path / "a.toml"
    parts = '{type = "text", text = "What is this?"}, {type = "image_url", image_url = {url = "dot.jpg"}}'
    file.write_text(f'[[prompt]]\nid = "a"\nmessages = [{{role = "user", content = [{parts}]}}]\n')
    (of_file,) = prompts.load(file).prompts
    (message,) = of_file.request.messages
    (of_url,) = _load(tmp_path, {"messages": [message]})
    assert message["content"][1] == {"type": "image_url", "image_url": {"url": DOT}}
    assert of_url.request == of_file.request
    assert of_url.needs == {"messages", "image_url"}
    assert (of_url.request.images, of_url.text) == (1, "What is this?[image]")
    request = BenchOptions(prompt=[of_url], depth=8)
    with pytest.raises(GgufspecError, match="has images, before which no other text is put"):
        texts.read_for_servers(request, texts.Preface(text="Once"))


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}, "is not a data: URL"),
        ({"type": "image_url", "image_url": {"url": "dot.jpg"}}, "is not a data: URL"),
        ({"type": "image_url"}, "is not a data: URL"),
        ({"type": "input_audio"}, "input_audio of message 1 is not measured"),
    ],
)
def test_what_a_server_would_download_is_refused(tmp_path: Path, part: dict[str, Any], reason: str) -> None:
    with pytest.raises(GgufspecError, match=reason):
        _load(tmp_path, {"messages": [{"role": "user", "content": [part]}], "stop": "."})


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "tool_calls": [CALL, CALL | {"id": "c2"}]},
    {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
    {"role": "tool", "tool_call_id": "c2", "content": "Wind"},
    {"role": "assistant", "content": "Rain and wind."},
    {"role": "user", "content": "And tomorrow?"},
]
ENDS = (2, 5, 7)  # of the messages before each answer


def test_each_answer_of_a_recorded_chat_is_a_turn_behind_the_recorded_ones(tmp_path: Path) -> None:
    answered = [*TALK, {"role": "assistant", "content": "Sun."}]
    (whole,) = _load(tmp_path, {"id": "a", "messages": answered, "tools": [TOOL], "every_turn": True})
    turns = prompts.recorded_turns(whole)
    assert [_asked(turn)["messages"] for turn in turns] == [TALK[:end] for end in ENDS]
    assert [turn.id for turn in turns] == ["a", "a#2", "a#3"]
    assert all(_asked(turn)["tools"] == [TOOL] for turn in turns)
    assert turns[1].text == f"{turns[0].text}\n\nRain\n\nWind"
    warm = prompts.PromptTurns(whole, None, warm=True)
    warm.add_answer("what the model says itself is not in the history")
    assert warm.made[1].request == turns[1].request
    assert (turns[1].history, warm.made[1].history) == (0, len(turns[0].text))


def test_requests_that_go_on_with_one_another_are_turns_as_agents_send_them(tmp_path: Path) -> None:
    body = {"tools": [TOOL], "timestamp": 1.5, "usage": {"completion_tokens": 9}}
    sent = [body | {"messages": TALK[:end]} for end in ENDS]
    other = {"messages": TALK[:2], "tools": [TOOL], "stop": "."}
    joined, alone, again = _load(tmp_path, *sent, other, sent[0])
    assert [turn.request for turn in prompts.recorded_turns(joined)] == [
        Request.of({"messages": TALK[:end], "tools": [TOOL]}) for end in ENDS
    ]
    assert (alone.followups, again.followups, again.id) == ((), (), "bodies-5")


@pytest.mark.parametrize(
    "row", [{"every_turn": 1}, {"every_turn": True, "prompt": "Go"}, {"every_turn": "yes", "messages": TALK}]
)
def test_every_turn_needs_messages(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(GgufspecError, match="every_turn is true or false, beside messages"):
        _load(tmp_path, {"prompt": "a"} | row if "messages" not in row else row)


def test_a_prompt_in_python_takes_what_toml_takes(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"id": "call", "text": "Rain?", "category": "calls", "json_schema": SCHEMA}
    (read,) = _load(tmp_path, fields)
    made = ggufspec.Prompt(**fields)
    assert made == replace(read, id=made.id)
    suite = texts.read_suite(BenchOptions(prompt=[made, "Once"]), embedded=False, has_template=False)
    assert suite.prompts == (made, Prompt(id="p2", text="Once"))
    with pytest.raises(GgufspecError, match="the prompt call: a prompt has no key 'txt'"):
        ggufspec.Prompt(id="call", txt="Rain?")


# The suites of agents, schemas, edits and thinking: what they ask for is valid, and long enough


def _turns(prompt: Prompt) -> list[Request]:
    return [turn.request for turn in prompts.recorded_turns(prompt) if turn.request is not None]


@pytest.mark.parametrize("prompt", prompts.suite("agent").prompts, ids=lambda prompt: prompt.id)
def test_a_conversation_of_an_agent_is_one_that_a_server_has_had(prompt: Prompt) -> None:
    turns = _turns(prompt)
    assert 6 <= len(turns) <= 12
    assert {turn.messages[-1]["role"] for turn in turns} <= {"user", "tool"}
    assert len(turns[-1].body) > 7_000  # characters, some 2,000 tokens
    tools = {tool["function"]["name"]: tool["function"] for tool in turns[0].fields["tools"]}
    for tool in tools.values():
        Draft202012Validator.check_schema(tool["parameters"])
    called: list[str] = []
    for message in turns[-1].messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == called.pop(0)
            continue
        assert not called, "a call has no result"
        for call in message.get("tool_calls", ()):
            called.append(call["id"])
            arguments = json.loads(call["function"]["arguments"])
            Draft202012Validator(tools[call["function"]["name"]]["parameters"]).validate(arguments)
            assert re.fullmatch(r"\w{9}", call["id"])  # the templates of Mistral refuse others
            assert is_valid(turns[0], f"<tool_call>{json.dumps(_named(call))}</tool_call>")


def _named(call: dict[str, Any]) -> dict[str, Any]:
    return {"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])}


def test_schemas_are_valid_and_some_are_deep() -> None:
    schemas = {
        prompt.id: request.fields["response_format"]["json_schema"]["schema"]
        for prompt in prompts.suite("structured").prompts
        for request in _turns(prompt)
    }
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    depths = {name: _depth(schema) for name, schema in schemas.items()}
    assert depths["flat-ticket"] == 1
    assert max(depths.values()) >= 5
    assert "$ref" in json.dumps(schemas["deep-filter"])


def _depth(schema: object) -> int:
    if isinstance(schema, dict):
        below = max((_depth(value) for value in schema.values()), default=0)
        return below + int(schema.get("type") == "object")
    return max(map(_depth, schema), default=0) if isinstance(schema, list) else 0


def test_edits_give_files_of_80_to_300_lines() -> None:
    for prompt in prompts.suite("edits").prompts:
        (file,) = re.findall(r"^```\w+\n(.*?)^```$", prompt.text, re.DOTALL | re.MULTILINE)
        assert 80 <= file.count("\n") <= 300, prompt.id


def test_users_send_recorded_turns_as_requests_of_their_own() -> None:
    agents = prompts.suite("agent").prompts
    sent = serving.plan_traffic(agents, 2, seed=1).prompts
    turns = [turn for prompt in agents for turn in prompts.recorded_turns(prompt)]
    assert sorted(prompt.id for prompt in sent) == sorted(turn.id for turn in turns)
    assert all(not prompt.turn and not prompt.followups for prompt in sent)
