"""Do answers parse, and satisfy the schema that was asked for? Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from ggufspec.domain import Request, RunSpec, TrafficSample
from ggufspec.results import Runs

_PARTS = re.compile(
    r"(?:<think>.*?</think>)?(?P<content>.*?)(?P<calls>(?:<tool_call>.*?</tool_call>)*)", re.DOTALL
)
_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Validity(NamedTuple):
    """How many answers were judged, and how many of them are valid."""

    answers: int
    valid: int

    @property
    def share(self) -> float:
        """The share of valid answers, 0 to 1."""
        return self.valid / self.answers


def judge_validity(runs: Runs) -> Validity | None:
    """Return what the answers of some runs are worth; None where no prompt asks for a form.

    Without grammars and schemas (``Asking``), answers are judged by what the prompts ask.
    """
    if all(spec.prompt.request is None and spec.traffic is None for spec in runs.by_spec()[0]):
        return None
    judged = [
        is_valid(request, text)
        for spec, *written in zip(runs.specs, runs.column("text"), runs.column("traffic"), strict=True)
        for request, text in _answers(spec, *written)
    ]
    known = [valid for valid in judged if valid is not None]
    return Validity(len(known), sum(known)) if known else None


def _answers(spec: RunSpec, text: str | None, users: TrafficSample | None) -> Iterator[tuple[Request, str]]:
    if spec.traffic is None:
        if spec.prompt.request is not None and text is not None:
            yield spec.prompt.request, text
        return
    for answer in () if users is None else users.answers:
        request = spec.traffic.prompts[answer.prompt].request
        if request is not None:
            yield request, answer.text


@cache
def is_valid(request: Request, text: str) -> bool | None:
    """Return whether an answer has the form that a request asks for; None where it asks for none.

    The arguments of calls have to satisfy the parameters of their tool. An answer without calls has to
    satisfy the schema; one that had to call a tool is not valid. Texts of grammars are not judged.

    Args:
        request: with a schema or tools.
        text: the answer, in the form of ``llama.server.AnswerText``.
    """
    fields = request.fields
    parts = _PARTS.fullmatch(text)
    assert parts is not None  # its second part matches anything
    functions = [tool["function"] for tool in fields.get("tools", ()) if "function" in tool]
    tools = {function["name"]: function for function in functions}
    calls = _CALL.findall(parts["calls"])
    if calls:
        return all(_is_valid_call(call, tools) for call in calls)
    schema = _schema_of(fields)
    if schema is not None:
        return _satisfies(parts["content"], schema)
    return False if tools and fields.get("tool_choice", "auto") not in ("auto", "none") else None


def _schema_of(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of an answer, as llama-server finds it (``oaicompat_chat_params_parse``)."""
    asked = fields.get("response_format", {})
    if asked.get("type") == "json_schema":
        return asked.get("json_schema", {}).get("schema", {})  # type: ignore[no-any-return]
    if asked.get("type") == "json_object":
        return asked.get("schema") or {"type": "object"}
    return fields.get("json_schema")


def _is_valid_call(call: str, tools: dict[str, dict[str, Any]]) -> bool:
    try:
        named = json.loads(call)
    except (ValueError, RecursionError):
        return False
    tool = tools.get(named["name"])
    return tool is not None and _satisfies(json.dumps(named["arguments"]), tool.get("parameters", {}))


def _satisfies(text: str, schema: dict[str, Any]) -> bool:
    """Return whether a text is JSON that satisfies a schema; references to other files are not followed."""
    from jsonschema import Draft202012Validator, exceptions  # slow to import
    from referencing import Registry, exceptions as unresolved

    try:
        return Draft202012Validator(schema, registry=Registry()).is_valid(json.loads(text))
    except (ValueError, RecursionError, exceptions.SchemaError, unresolved.Unresolvable):
        return False
