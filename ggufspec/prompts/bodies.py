"""Bodies of requests, in OpenAI's or llama-server's own form, to what a prompt asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ggufspec.domain import IMAGE, Prompt, Request, message_text
from ggufspec.prompts.suite import BadPromptError, build, check_text

ARRIVALS = ("arrival_s", "timestamp", "time", "ts", "created", "created_at", "start_time", "date")
"""Fields in which logs have the time of a request."""
BESIDE_TEXT = frozenset({"grammar", "json_schema", "stop"})
"""Fields that llama-server takes beside a text to continue, too."""
OF_CHATS = frozenset(
    {
        *("tools", "tool_choice", "parallel_tool_calls", "response_format", "chat_template_kwargs"),
        *("reasoning_effort", "reasoning_format", "reasoning_budget_tokens", "thinking_budget_tokens"),
        "reasoning_budget_message",
    }
)
"""Fields that only chats have: they change what the chat template writes, or how an answer is read."""
ASKED = BESIDE_TEXT | OF_CHATS
SET_BY_OPTIONS = frozenset(
    {
        *("model", "stream", "stream_options", "n_predict", "max_tokens", "max_completion_tokens", "seed"),
        *("temperature", "top_p", "top_k", "min_p", "cache_prompt", "id_slot", "timings_per_token"),
        *("return_tokens", "return_progress", "user", "metadata", "store", "service_tier"),
        *("safety_identifier", "prompt_cache_key", "verbosity", "usage", *ARRIVALS),
    }
)
"""Fields of a request's body that a bench decides by its options, or that do not change the answer."""
EVERY_TURN = "every_turn"
"""The field of a prompt whose recorded answers are turns: each is asked for, and stands before the next."""
_NOTHING: tuple[object, ...] = (None, [], {}, "", {"type": "text"})
"""Values that ask for nothing."""
_OFF = {"n": (1,), "logprobs": (False,), "presence_penalty": (0,), "frequency_penalty": (0,)}
"""Fields that are not measured, and their values that change nothing."""
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("tools", "messages"), list),
    **dict.fromkeys(("response_format", "json_schema", "chat_template_kwargs"), dict),
    "grammar": str,
}
_NAMES: Mapping[type, str] = {list: "list", dict: "table", str: "text"}
_ASKING = frozenset({"user", "tool"})
"""The roles after whose messages the assistant answers."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_OF_MESSAGES = {"role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"}


def asked_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row asks for beside its text or its messages.

    Raises:
        BadPromptError: a field has the wrong type.
    """
    asked = {name: _decoded(name, row[name]) for name in ASKED & row.keys() if row[name] not in _NOTHING}
    if "tools" not in asked:  # then nothing can be called
        asked = {name: asked[name] for name in asked.keys() - {"tool_choice", "parallel_tool_calls"}}
    return asked


def _decoded(name: str, value: Any) -> Any:
    """Return a value, which TOML and the columns of datasets may have as a text in JSON."""
    expected = _TYPES.get(name)
    if isinstance(value, str) and expected in {list, dict}:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise BadPromptError(f"{name} is not JSON: {error}") from error
    if expected is not None and not isinstance(value, expected):
        raise BadPromptError(f"{name} is not a {_NAMES[expected]}")
    return value


def is_request(row: Mapping[str, Any]) -> bool:
    """Whether a row asks for more than answers to a user's messages."""
    messages = row.get("messages")
    asks = isinstance(messages, list) and any(
        isinstance(message, dict)
        and (message.get("role") == "tool" or message.get("tool_calls") or _has_image(message.get("content")))
        for message in messages
    )
    return asks or bool(row.get(EVERY_TURN)) or bool(asked_fields(row))


def _has_image(content: object) -> bool:
    return isinstance(content, list) and any(isinstance(part, dict) and IMAGE in part for part in content)


def build_asking(
    row: Mapping[str, Any],
    *,
    name: object,
    turns: Sequence[object],
    category: object = None,
    own: frozenset[str] = frozenset(),
) -> Prompt:
    """Make a prompt from the body of a request.

    Args:
        row: the body, perhaps with fields of a suite.
        name: the id.
        turns: the user's texts; those that follow the messages, where the body has messages.
        category: of the prompt.
        own: the fields of a suite.

    Raises:
        BadPromptError: a field or a message is unknown, or cannot be measured.
    """
    every_turn = row.get(EVERY_TURN, False)
    if not isinstance(every_turn, bool) or (every_turn and ("messages" not in row or turns)):
        raise BadPromptError(f"{EVERY_TURN} is true or false, beside messages and without other turns")
    request = _read_request(row, turns, own | {"messages", EVERY_TURN})
    request, *later = split_turns(request) if every_turn else [request]
    shown = [shown_text(request.messages) or request.body] if "messages" in row else []
    prompt = build(name=name, turns=[*shown, *turns], category=category, request=request)
    return replace(prompt, followups=(*prompt.followups, *later))


def split_turns(request: Request) -> list[Request]:
    """Return the request for the first answer of a recorded chat, and what follows it, turn by turn.

    Each later turn begins with the answer before it. An answer at the end is left out: it is asked for.
    """
    turns: list[list[dict[str, Any]]] = [[]]
    for before, message in pairwise([{"role": ""}, *request.messages]):
        if message["role"] == "assistant" and before["role"] in _ASKING:
            turns.append([])
        turns[-1].append(message)
    if turns[-1][-1]["role"] == "assistant":
        turns.pop()
    return [request.replace(messages=turns[0]), *(Request("{}").replace(messages=turn) for turn in turns[1:])]


def _read_request(row: Mapping[str, Any], turns: Sequence[object], own: frozenset[str]) -> Request:
    asked = asked_fields(row)
    for name in sorted(row.keys() - ASKED - SET_BY_OPTIONS - own):
        if row[name] not in _NOTHING and row[name] not in _OFF.get(name, ()):
            raise BadPromptError(
                f"{name} is not measured: without it, this would be another request",
                f"remove it; a request may have messages, {', '.join(sorted(ASKED))}",
            )
    if "grammar" in asked and asked.keys() & {"json_schema", "response_format"}:
        raise BadPromptError("it has both a grammar and a schema", "llama-server takes one of them")
    if "messages" in row:
        asked["messages"] = read_messages(_decoded("messages", row["messages"]))
    elif asked.keys() & OF_CHATS:
        asked["messages"] = [{"role": "user", "content": check_text(turns[0], "the text")}]
    if "tools" in asked and len(turns) > ("messages" not in row):
        raise BadPromptError(
            "it has tools and later turns, which would have to wait for results of its calls",
            "give messages with the calls and their results",
        )
    try:
        request = Request.of(asked)
    except (TypeError, ValueError) as error:
        raise BadPromptError(f"it cannot be written as JSON: {error}") from error
    assert request is not None
    return request


def read_messages(messages: object) -> list[dict[str, Any]]:
    """Return the messages of a chat as servers take them, their content as one text, or parts with images.

    Raises:
        BadPromptError: one is of another form, or has other content than text and images.
    """
    if not isinstance(messages, list) or not messages:
        raise BadPromptError("messages is not a list of messages")
    read = [read_message(number, message) for number, message in enumerate(messages, start=1)]
    if not any(message["role"] == "user" for message in read):
        raise BadPromptError("there is no message of a user")
    return read


def read_message(number: int, message: object) -> dict[str, Any]:
    """Return the message of a number in a chat as servers take it.

    Raises:
        BadPromptError: as for ``read_messages``.
    """
    # a tuple, because what a log has as a role may not be fit for a look-up
    if not isinstance(message, dict) or message.get("role") not in tuple(_ROLES):
        raise BadPromptError(f"the role of message {number} is not {', '.join(_ROLES)}")
    read = {name: value for name, value in message.items() if value not in _NOTHING}
    if strange := sorted(read.keys() - _OF_MESSAGES - {"refusal", "annotations", "audio", "function_call"}):
        raise BadPromptError(f"message {number} has an unknown field {strange[0]}")
    if strange := sorted(read.keys() - _OF_MESSAGES):
        raise BadPromptError(f"{strange[0]} of message {number} is not measured")
    content = message.get("content")
    if isinstance(content, list):
        parts = [_read_part(number, part) for part in content]
        if any(part["type"] == IMAGE for part in parts):
            return read | {"content": parts, "role": _ROLES[message["role"]]}
        content = "".join(part["text"] for part in parts)
    if content or "tool_calls" not in read:
        read["content"] = check_text(content, f"the content of message {number}")
    return read | {"role": _ROLES[message["role"]]}


def _read_part(number: int, part: object) -> dict[str, Any]:
    if not isinstance(part, dict) or not (isinstance(part.get("text"), str) or part.get("type") == IMAGE):
        kind = part.get("type") if isinstance(part, dict) else None
        raise BadPromptError(
            f"{kind or 'the content'} of message {number} is not measured: only text and images are"
        )
    if part.get("type") != IMAGE:
        return {"type": "text", "text": part["text"]}
    image = part.get(IMAGE)
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str) or not url.startswith("data:image/"):
        raise BadPromptError(  # a server would download it, which takes as long as its network
            f"the image of message {number} is not a data: URL",
            "give data:image/png;base64,…, or in a suite in TOML the path of a file",
        )
    return {"type": IMAGE, IMAGE: {"url": url}}


def shown_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return what the messages of a chat say, for readers."""
    return "\n\n".join(filter(None, map(message_text, messages)))
