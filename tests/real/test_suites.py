"""The suite of agents in the chat templates of real models, which llama.cpp's source holds."""

from __future__ import annotations

import itertools
import json
import re
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Template

from ggufspec import paths, prompts
from ggufspec.domain import Request
from ggufspec.prompts import sandbox

_CACHE = paths.cache_dir()  # at import, as in conftest.py
_FOLDER = "/models/templates/"
_ELSEWHERE = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "every parameter of its tools needs a description",
    "Kimi-K2-Instruct": "it changes a list, which Jinja's sandbox forbids and llama.cpp allows",
    "Kimi-K2-Thinking": "it changes a list, which Jinja's sandbox forbids and llama.cpp allows",
    "fireworks-ai-llama-3-firefunction-v2": "its tools are called functions",
    "google-gemma-2-2b-it": "it knows no system prompt, which llama.cpp puts before the first message",
    "llama-cpp-deepseek-r1": "it needs a filter of llama.cpp's own Jinja",
}
"""Templates that Jinja does not render with any conversation that has tools and a system prompt."""
_ONE_CALL = re.compile(r"meta-llama-Llama-3\.\d")  # refuses several calls at once


def _templates() -> Iterator[tuple[str, str]]:
    name = f"llama_cpp_python-{metadata.version('llama-cpp-python')}.tar.gz"
    archive = next((_CACHE / "sources").glob(f"*/{name}"), None)
    if archive is None:
        pytest.skip(f"{name} is not in the cache: `ggufspec build` leaves it there")
    with tarfile.open(archive) as tar:
        others = itertools.dropwhile(lambda member: _FOLDER not in member.name, tar)
        for member in itertools.takewhile(lambda member: _FOLDER in member.name, others):
            if member.name.endswith(".jinja"):
                yield Path(member.name).stem, tar.extractfile(member).read().decode()


def _decoded(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as llama.cpp gives it to most templates: arguments of calls as objects."""
    calls = [
        call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {"content": ""} | message | ({"tool_calls": calls} if calls else {})


def _render(template: Template, request: Request) -> str:
    given = {"tools": request.fields["tools"], "add_generation_prompt": True}
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    try:
        return template.render(messages=[*map(_decoded, request.messages)], **given, **special)
    except TypeError:  # some want the text, as OpenAI has it
        return template.render(messages=request.messages, **given, **special)


@pytest.mark.takes(10)
def test_every_conversation_of_agents_renders_in_templates_of_real_models() -> None:
    requests = [
        request
        for prompt in prompts.suite("agent").prompts
        if (request := prompts.recorded_turns(prompt)[-1].request) is not None
    ]
    rendered = 0
    for name, source in _templates():
        if name in _ELSEWHERE:
            continue
        template = sandbox.compile_template(source)
        for request in requests:
            messages = request.messages
            has_one = all(len(message.get("tool_calls", ())) < 2 for message in messages)
            if _ONE_CALL.match(name) and not has_one:
                continue
            text = _render(template, request)
            last = messages[-1]["content"]
            if "tools" in source:
                assert max(re.findall(r"\w+", last), key=len) in text, name
                called = {
                    call["function"]["name"] for each in messages for call in each.get("tool_calls", ())
                }
                assert all(tool in text for tool in called), name
            rendered += 1
    assert rendered > 60 * 6
