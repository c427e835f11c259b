"""Bodies of requests become prompts that ask for the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ggufspec import prompts
from ggufspec.domain import Prompt, Request

PROPERTIES = {"zone": {"type": "string"}, "area": {"type": "string"}}
PROPERTIES = {"zone": {"type": "string"}, "area": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PROPERTIES}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
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


def test_a_schema_leaves_a_text_as_it_is_and_a_response_format_makes_it_a_chat(
    tmp_path: Path,
) -> None:
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
