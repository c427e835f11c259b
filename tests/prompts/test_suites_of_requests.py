"""The suites of agents, schemas, edits and thinking: what they ask for is valid, and long enough."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ggufspec import prompts, serving
from ggufspec.analysis import validity
from ggufspec.domain import Prompt, Request


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
            assert validity.is_valid(turns[0], f"<tool_call>{json.dumps(_named(call))}</tool_call>")


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
