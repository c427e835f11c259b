"""Logs of requests: what users sent to a server, and when.

JSONL                one object a line: the time of arrival, and the body of a request to OpenAI's API
                     (messages or prompt), itself or under body, request or params; the answer's usage, if
                     it is there
llama-server's log   with --verbose, where that logs the bodies (b9466 does; b11312 of llama-cpp-python
                     0.3.36 never calls the function that would, tools/server/server-http.cpp:181)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from ggufspec import userfiles
from ggufspec.domain import Request
from ggufspec.errors import GgufspecError
from ggufspec.prompts import bodies, datasets
from ggufspec.prompts.chat import Message
from ggufspec.prompts.suite import BadPromptError, check_text

_MOST_BYTES = 1 << 30  # a server's log of a day
_BODIES = ("body", "request", "request_body", "params")
_LENGTHS = ("max_completion_tokens", "max_tokens", "n_predict", "max_output_tokens")
_ANSWERS = ("response", "response_body", "result")
_NEEDED = frozenset({"functions", "function_call", "images", "image_data", "audio", "logit_bias"})
"""Fields that would be missed, and that are not measured."""
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # from this number on: so many in a second
_LATEST_NS = 1e19  # after the year 2280; an integer of JSON may be too large for a float
_EVENT = re.compile(
    r"^(?P<minutes>\d+)\.(?P<seconds>\d\d)\.(?P<ms>\d{3})\.(?P<us>\d{3}) [TIWED] .*?"
    r"(?:new task, id = (?P<posted>\d+)/|task (?P<launched>\d+) \| processing task"
    r"|task (?P<released>\d+) \| stop processing|log_server_r: request: +(?=\{))",
    re.MULTILINE,
)
_EXAMPLE = '{"timestamp": 1732233600.5, "messages": [{"role": "user", "content": "Hello"}]}'
_FORM = f"each line is an object such as {_EXAMPLE}"
_HOW_TO_RECORD = (
    f"record JSONL where requests are sent ({_FORM}); or start llama-server with --verbose --log-prefix "
    "--log-timestamps, if its build logs texts then: b9466 does, b11312 (llama-cpp-python 0.3.36) does not"
)


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """One request that a user sent.

    Attributes:
        at_s: seconds since the first request.
        text: a text to continue; empty for a chat.
        turns: the messages of a chat, the user's and the assistant's in turn, the user's first and last.
        system: the system prompt of a chat.
        request: what was asked besides, with all messages of a chat; None where nothing was.
        answer_tokens: the length of the answer if it was recorded, or else the most that was asked for.
    """

    at_s: float
    text: str = ""
    turns: tuple[Message, ...] = ()
    system: str | None = None
    request: Request | None = None
    answer_tokens: int | None = None

    @property
    def is_chat(self) -> bool:
        """Whether it has messages."""
        return bool(self.turns) or (self.request is not None and self.request.is_chat)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The requests of a log by their arrival, and how many others it has that cannot be sent again."""

    requests: tuple[RecordedRequest, ...]
    left_out: int = 0

    @property
    def is_chat(self) -> bool:
        """Whether the requests are messages."""
        return self.requests[0].is_chat

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.requests[-1].at_s


def read_recording(file: Path) -> Recording:
    """Return the requests of a log.

    Raises:
        GgufspecError: the file cannot be read, has no requests or no times, or chats and other requests.
    """
    content = _read(file)
    is_jsonl = content.lstrip()[:1] == "{"
    rows = _jsonl(file, content) if is_jsonl else _server_log(file, content)
    usable, left_out = [], 0
    for row in rows:
        try:
            usable.append(_request(row))
        except BadPromptError:
            left_out += 1
    if not usable:
        raise GgufspecError(f"{file} has no requests that can be sent again", _FORM)
    if len({request.is_chat for request in usable}) > 1:
        raise GgufspecError(
            f"{file} has both chats and texts to continue", "split it into two files, and replay each"
        )
    first = min(request.at_s for request in usable)
    since = (replace(request, at_s=round(request.at_s - first, 6)) for request in usable)
    return Recording(requests=tuple(sorted(since, key=lambda request: request.at_s)), left_out=left_out)


def read_conversation(file: Path) -> tuple[Message, ...] | None:
    """Return the turns of a chat, the user's first; those of several chats follow one another.

    Args:
        file: JSON or JSONL with ``messages``, by its ending; any other file is a text.

    Returns:
        The turns without system prompts; None for a text.

    Raises:
        GgufspecError: the file cannot be read, or has no messages of a user.
    """
    if file.suffix.lower() not in datasets.JSON_ENDINGS:
        return None
    content = _read(file)
    try:
        turns = [turn for row in _json_values(content) for turn in _turns(_messages(row["messages"]))]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GgufspecError(f"{file} is not a conversation", _FORM) from error
    if not turns:
        raise GgufspecError(f"{file} has no messages of a user", _FORM)
    return tuple(turns)


def _read(file: Path) -> str:
    """Return the text of a log, in which some bytes may be none of UTF-8."""
    content = userfiles.load(file, "check its path", most_bytes=_MOST_BYTES)
    return content.decode("utf-8-sig", errors="replace")


def _json_values(content: str) -> list[Any]:
    """Return the values of JSON, or of JSONL."""
    try:
        return [json.loads(content)]
    except ValueError:
        return [json.loads(line) for line in content.split("\n") if line.strip()]


@dataclass(frozen=True, kw_only=True)
class _RecordedRow:
    """A request as a log has it."""

    at_s: float
    body: dict[str, Any]
    answered: int | None = None


def _jsonl(file: Path, content: str) -> Iterator[_RecordedRow]:
    for where, _, row in datasets.read_rows(file, content, _FORM):
        body = next((body for name in _BODIES if (body := _object(row.get(name))) is not None), row)
        times = (_time(mapping.get(name)) for mapping in (row, body) for name in bodies.ARRIVALS)
        at_s = next((at_s for at_s in times if at_s is not None), None)
        if at_s is None:
            raise GgufspecError(
                f"{where}: the request has no time of arrival, in none of {', '.join(bodies.ARRIVALS)}",
                "requests without times are prompts: give the file with --prompt-file",
            )
        yield _RecordedRow(at_s=at_s, body=body, answered=_answer_tokens(row))


def _server_log(file: Path, content: str) -> Iterator[_RecordedRow]:
    """Yield the requests of llama-server's log.

    A task's first line has the time of its arrival. A body is logged without the task's number: that of a
    streamed answer with its first token, any other after its last one. So it belongs to the task that was
    launched last, or that ended first, of those without a body.
    """
    decoder = json.JSONDecoder()
    arrivals: dict[str, float] = {}
    launched: list[str] = []
    released: list[str] = []
    rows = []
    for match in _EVENT.finditer(content):
        parts = match.groupdict()
        at_s = int(parts["minutes"]) * 60 + int(parts["seconds"]) + int(parts["ms"]) / 1e3
        at_s += int(parts["us"]) / 1e6
        task = parts["posted"] or parts["launched"]
        if task is not None:
            arrivals.setdefault(task, at_s)
        if parts["launched"] is not None:
            launched.append(parts["launched"])
        elif parts["released"] in launched:
            launched.remove(parts["released"])
            released.append(parts["released"])
        elif task is None and parts["released"] is None:
            body = _decode_body(decoder, content, match.end())
            tasks = launched[::-1] + released if body.get("stream") else released + launched[::-1]
            if (body.get("messages") or body.get("prompt")) and tasks:
                (launched if tasks[0] in launched else released).remove(tasks[0])
                rows.append(_RecordedRow(at_s=arrivals[tasks[0]], body=body))
    if not rows:
        raise GgufspecError(f"{file} has no requests with their texts and times", _HOW_TO_RECORD)
    yield from rows


def _decode_body(decoder: json.JSONDecoder, content: str, start: int) -> dict[str, Any]:
    """Return the JSON object that begins at a place of a log; an empty one where it is broken."""
    body: Any = None
    with suppress(ValueError, RecursionError):
        body, _ = decoder.raw_decode(content, start)
    return body if isinstance(body, dict) else {}


def _object(value: object) -> dict[str, Any] | None:
    """Return a JSON object, also one that is written in a text."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return value if isinstance(value, dict) else None


def _time(value: object) -> float | None:
    """Return a time in seconds, from a number of s, ms, µs or ns since 1970, or from ISO 8601."""
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_NS:
        return None
    return value / next((per_s for least, per_s in _UNITS if value >= least), 1.0)


def _answer_tokens(row: dict[str, Any]) -> int | None:
    """Return the length of the answer, if a row has its usage."""
    answers = [row, *(answer for name in _ANSWERS if (answer := _object(row.get(name))) is not None)]
    answers += [inner for answer in answers if (inner := _object(answer.get("body"))) is not None]
    usages = (usage for answer in answers if (usage := _object(answer.get("usage"))) is not None)
    counts = (usage.get("completion_tokens", usage.get("output_tokens")) for usage in usages)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _request(row: _RecordedRow) -> RecordedRequest:
    """Return what can be sent again.

    Raises:
        BadPromptError: the request has other content than text, asks for no answer, or for something that is
            not measured.
    """
    body = row.body
    max_tokens = next((n for name in _LENGTHS if isinstance(n := body.get(name), int) and n > 0), None)
    length = max_tokens if row.answered is None else row.answered
    if bodies.is_request(body):
        texts = [] if "messages" in body else [body.get("prompt")]
        own = frozenset(body) - _NEEDED  # servers and gateways log fields of their own
        asked = bodies.build_asking(body, name="request", turns=texts, own=own)
        text = "" if asked.is_chat else asked.text
        return RecordedRequest(at_s=row.at_s, text=text, request=asked.request, answer_tokens=length)
    if isinstance(body.get("messages"), list):
        messages = _messages(body["messages"])
        turns = _turns(messages)
        turns = turns[:-1] if turns and turns[-1].role == "assistant" else turns
        if not turns:
            raise BadPromptError("there is no message of a user")
        system = "\n\n".join(message.content for message in messages if message.role == "system") or None
        return RecordedRequest(at_s=row.at_s, turns=tuple(turns), system=system, answer_tokens=length)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    return RecordedRequest(at_s=row.at_s, text=check_text(prompt, "the prompt"), answer_tokens=length)


def _messages(messages: Sequence[Any]) -> list[Message]:
    """Return the messages of a chat of texts alone; what servers log beside role and content is left out."""
    read = []
    for number, message in enumerate(messages, start=1):
        fields = {key: message.get(key) for key in ("role", "content")} if isinstance(message, dict) else None
        parsed = bodies.read_message(number, fields)
        if parsed["role"] == "tool" or not isinstance(parsed["content"], str):
            raise BadPromptError(f"message {number} is of a tool, or has images")
        read.append(Message(parsed["role"], parsed["content"]))
    return read


def _turns(messages: Sequence[Message]) -> list[Message]:
    """Return the user's and the assistant's messages in turn, from the user's first one on."""
    spoken = (message for message in messages if message.role != "system")
    turns = [
        Message(role, "\n\n".join(message.content for message in group))
        for role, group in groupby(spoken, key=lambda message: message.role)
    ]
    return turns[1:] if turns and turns[0].role == "assistant" else turns
