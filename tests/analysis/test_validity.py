"""Which answers have the form that their prompts ask for, with and without a grammar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ggufspec.analysis import arms, texts
from ggufspec.domain import Asking, Prompt, Request
from tests.support import values

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "How many?"}]}


def _call(arguments: str, name: str = "count") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    ("asked", "text", "valid"),
    [
        ({"json_schema": SCHEMA}, '{"n": 3}', True),
        ({"json_schema": SCHEMA}, '<think>Three?</think> {"n": 3}', True),
        ({"json_schema": SCHEMA}, '{"n": "3"}', False),
        ({"json_schema": SCHEMA}, '{"n": 3', False),
        ({"json_schema": {"$ref": "https://example.org/never-asked.json"}}, '{"n": 3}', False),
        (CHAT | {"response_format": {"type": "json_object"}}, "[]", False),
        (CHAT | {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "{}", False),
        ({"grammar": "root ::= [a-z]+"}, "abc", None),
        (CHAT | {"tools": [TOOL]}, "There are three.", None),
        (CHAT | {"tools": [TOOL], "tool_choice": "required"}, "There are three.", False),
        (CHAT | {"tools": [TOOL], "tool_choice": {"type": "function"}}, "Three.", False),
        (CHAT | {"tools": [TOOL]}, f"I count.{_call('{')}", False),
        (CHAT | {"tools": [TOOL]}, _call('{"n": 3}') + _call('{"n": 4}'), True),
        (CHAT | {"tools": [TOOL]}, _call('{"n": 3}') + _call("{}"), False),
        (CHAT | {"tools": [TOOL]}, _call('{"n": 3}', "add"), False),
    ],
)
def test_an_answer_has_the_requested_form(asked: dict[str, Any], text: str, valid: bool | None) -> None:
    request = Request.of(asked)
    assert request is not None
    assert texts.is_valid(request, text) is valid


def test_arms_without_a_grammar_are_judged_by_what_their_prompts_ask() -> None:
    prompt = Prompt(id="p1", text="How many?", request=Request.of({"json_schema": SCHEMA}))
    written_by = {True: ('{"n": 3}', '{"n": 4}'), False: ('{"n": 3}', "three")}
    runs = []
    for constrain, written in written_by.items():
        for repeat, text in enumerate(written):
            run = values.run(repeat=repeat)
            spec = replace(run.spec, prompt=prompt, asking=Asking(constrain=constrain))
            runs.append(replace(run, spec=spec, sample=replace(run.sample, text=text)))
    groups = arms.group(values.bench(*runs))
    assert {arm.spec.words: arm.validity for arm in groups} == {
        (): texts.Validity(answers=2, valid=2),
        ("--constrain", "off"): texts.Validity(answers=2, valid=1),
    }


def test_thinking_is_asked_for_in_the_words_of_the_server() -> None:
    request = Request.of(CHAT | {"reasoning_effort": "none", "response_format": {"type": "json_object"}})

    def sent(**asking: Any) -> dict[str, Any]:
        changed = Asking(**asking).change(request)
        return changed.fields

    assert sent() == request.fields
    assert sent(constrain=False) == CHAT | {"reasoning_effort": "none"}
    off = sent(reasoning="off")
    assert (off["chat_template_kwargs"], "reasoning_effort" in off) == ({"enable_thinking": False}, False)
    budget = sent(reasoning=64)
    assert (budget["chat_template_kwargs"], budget["reasoning_budget_tokens"]) == (
        {"enable_thinking": True},
        64,
    )
    assert Asking(constrain=False).change(Request.of({"json_schema": SCHEMA})) is None
