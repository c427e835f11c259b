"""Decode what servers answer: llama-server of every era, and servers with OpenAI's interface. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import msgspec

from ggufspec.domain import Failure, Round, Status
from ggufspec.llama.logs import parsing

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
"""Tokens."""
Number = Annotated[int, msgspec.Meta(ge=-1 << 31, le=1 << 31)]
"""Tokens, or a negative number if llama.cpp has not counted them."""
END = "[DONE]"
"""The event that ends streams in OpenAI's format."""

T = TypeVar("T")

# A decoder that is made once saves a fifth of the time, and thousands of events a second may arrive from many
# users.
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


class DepthCounts(msgspec.Struct, frozen=True):
    """How many drafts reached a position, and how many of these tokens were accepted; of ik_llama.cpp."""

    depth: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
    draft_n_accepted: Count


class Timings(msgspec.Struct, frozen=True):
    """Figures so far; llama.cpp writes NaN and infinity as null."""

    prompt_n: Number | None = None
    prompt_per_second: float | None = None
    predicted_n: Number | None = None
    predicted_ms: float | None = None
    predicted_per_second: float | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None
    cache_n: Number | None = None
    draft_by_depth: tuple[DepthCounts, ...] = ()


class CalledFunction(msgspec.Struct, frozen=True):
    """A piece of a function call: the name comes first, then its arguments in JSON, piece by piece."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """What an event adds to the call of a tool; several calls are told apart by ``index``."""

    index: int = 0
    function: CalledFunction = CalledFunction()


class ChatDelta(msgspec.Struct, frozen=True):
    """What an event adds to the message of a chat."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the same in newer servers
    tool_calls: tuple[CallDelta, ...] | None = None


class StreamedChoice(msgspec.Struct, frozen=True):
    """What an event adds to an answer: ``delta`` in a chat, otherwise ``text``."""

    text: str | None = None
    delta: ChatDelta | None = None
    finish_reason: str | None = None


class CachedTokens(msgspec.Struct, frozen=True):
    """Of the tokens of a prompt, those that the server had evaluated before."""

    cached_tokens: int | None = None


class TokenUsage(msgspec.Struct, frozen=True):
    """The tokens of a prompt and of its answer."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None

    @property
    def timings(self) -> Timings:
        """The same as llama-server counts: the evaluated tokens of the prompt, and the others."""
        cached = None if self.prompt_tokens_details is None else self.prompt_tokens_details.cached_tokens
        new = None if self.prompt_tokens is None else self.prompt_tokens - (cached or 0)
        return Timings(prompt_n=new, predicted_n=self.completion_tokens, cache_n=cached)


class AnswerEvent(msgspec.Struct, frozen=True):
    """One event of a streamed answer: of llama-server's /completion, or in OpenAI's format (``choices``).

    Of servers with OpenAI's format, only llama-server sends ``timings``.
    """

    content: str | None = None
    tokens: tuple[int, ...] | None = None
    timings: Timings | None = None
    stop: bool = False
    stop_type: str | None = None
    stopped_eos: bool = False  # before ``stop_type``
    truncated: bool = False
    tokens_evaluated: Number | None = None
    choices: tuple[StreamedChoice, ...] = ()
    usage: TokenUsage | None = None
    object: str | None = None
    error: Any = None
    code: Any = None  # old builds send an error in place of an event
    message: Any = None

    @property
    def figures(self) -> Timings:
        """The timings; empty if there are none."""
        return self.timings or Timings()

    @property
    def n_prompt(self) -> int | None:
        """Tokens of the prompt, cached or not; builds before b6399 name only all of them together."""
        if self.figures.cache_n is not None and self.figures.prompt_n is not None:
            return self.figures.cache_n + self.figures.prompt_n
        return self.tokens_evaluated

    @property
    def draft(self) -> Round:
        """Tokens drafted and accepted so far."""
        return Round(self.figures.draft_n or 0, self.figures.draft_n_accepted or 0)

    @property
    def finish_reason(self) -> str | None:
        """Why a chat ended; None before its end."""
        return next((choice.finish_reason for choice in self.choices if choice.finish_reason), None)

    @property
    def is_token(self) -> bool:
        """Whether llama-server sent it for a token; it sends the pieces of one token one after the other."""
        return self.content is not None or (bool(self.choices) and self.timings is not None)

    @property
    def failure(self) -> Failure | None:
        """The error that the server reports within its answer, if any."""
        if self.error is not None:  # an object, or only its message
            known = self.error if isinstance(self.error, dict) else {"message": self.error}
            return refused(known.get("code"), known.get("message"))
        is_bare = self.object in {None, "error"} and self.code is not None and self.message is not None
        return refused(self.code, self.message) if is_bare else None


class AnswerText:
    """Writes an answer in one form as its pieces arrive, so that answers can be compared and read again.

    ``<think>THINKING</think>CONTENT<tool_call>{"name": NAME, "arguments": JSON}</tool_call>``: the tags of
    Hermes and Qwen. Ids of calls are left out, because servers draw them at random.
    """

    def __init__(self) -> None:
        """Begin an answer."""
        self._part: object = None
        self._ending = ""

    def add(self, event: AnswerEvent) -> str:
        """Return what an event adds to the text."""
        text = event.content or ""
        for choice in event.choices:
            delta = choice.delta
            if delta is None:
                text += choice.text or ""
                continue
            thinking = delta.reasoning_content or delta.reasoning
            text += self._within("thinking", "<think>", "</think>", thinking) if thinking else ""
            text += self._within("content", "", "", delta.content) if delta.content else ""
            for call in delta.tool_calls or ():
                begin = f'<tool_call>{{"name": {json.dumps(call.function.name)}, "arguments": '
                text += self._within(call.index, begin, "}</tool_call>", call.function.arguments or "")
        return text

    def end(self) -> str:
        """Return what ends the last part, behind the last event."""
        self._part, ending, self._ending = None, self._ending, ""
        return ending

    def _within(self, part: object, begin: str, ending: str, piece: str) -> str:
        if part == self._part:
            return piece
        before = self.end()
        self._part, self._ending = part, ending
        return f"{before}{begin}{piece}"


def write_answer(events: Iterable[AnswerEvent]) -> str:
    """Return the text of a complete answer."""
    text = AnswerText()
    return "".join([*map(text.add, events), text.end()])


class _GenerationSettings(msgspec.Struct, frozen=True):
    n_ctx: Count | None = None


class _Modalities(msgspec.Struct, frozen=True):
    vision: bool | None = None


class ServerProperties(msgspec.Struct, frozen=True):
    """llama-server's /props."""

    build_info: str | None = None
    model_path: str | None = None
    total_slots: int | None = None
    media_marker: str | None = None  # drawn at each start, unless LLAMA_MEDIA_MARKER fixes it
    default_generation_settings: _GenerationSettings | None = None
    modalities: _Modalities = _Modalities()

    @property
    def slot_context(self) -> int | None:
        """The context of a slot in tokens; None where the server does not say."""
        settings = self.default_generation_settings
        return None if settings is None else settings.n_ctx


class _SlotParams(msgspec.Struct, frozen=True):
    types: str | None = msgspec.field(name="speculative.types", default=None)


class _ListedSlot(msgspec.Struct, frozen=True):
    speculative: bool | None = None
    params: _SlotParams | None = None  # of its last request


class _Tokenized(msgspec.Struct, frozen=True):
    tokens: list[Any]


def decode(content: bytes | str, expected: type[T]) -> T:
    """Return an answer as a value.

    Raises:
        Failure: it is not JSON, or a field has the wrong type.
    """
    if expected not in _decoders:
        _decoders[expected] = msgspec.json.Decoder(expected)
    try:
        decoded: T = _decoders[expected].decode(content)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(error) from error
    return decoded


def decode_or_none(content: bytes | None, expected: type[T]) -> T | None:
    """Return an answer as a value; None if there is none, or it is of another form."""
    if content is None:
        return None
    try:
        return decode(content, expected)
    except Failure:
        return None


def read_properties(content: bytes | None) -> ServerProperties:
    """Return what /props says; nothing is known where it cannot be read."""
    return decode_or_none(content, ServerProperties) or ServerProperties()


def read_slot_drafts(content: bytes | None) -> bool | None:
    """Return whether a slot drafts, according to /slots; None if it does not say or cannot be read."""
    slots = decode_or_none(content, list[_ListedSlot])
    return slots[0].speculative if slots else None


def read_slot_methods(content: bytes | None) -> str | None:
    """Return what drafts by llama-server's names, according to /slots after a request; None if not said."""
    slots = decode_or_none(content, list[_ListedSlot]) or []
    types = next((slot.params.types for slot in slots if slot.params is not None), None)
    return None if types is None else ",".join(name for name in types.split(",") if name != "none")


def read_tokens(content: bytes) -> list[Any]:
    """Return the tokens that /tokenize makes of a text.

    Raises:
        Failure: it says something else.
    """
    return decode(content, _Tokenized).tokens


def event_text(line: str) -> str | None:
    """Return the content of a line of a stream: ``data: {…}``, or ``error: {…}`` in old builds.

    None for a line that is not an event: empty, a comment, another field, or the end of the stream.
    """
    field, _, content = line.partition(":")
    content = content.strip()
    return content if field in {"data", "error"} and content != END else None


def unreadable(error: Exception) -> Failure:
    """Return the failure for an answer that cannot be decoded."""
    return Failure(Status.FAILED, f"the server's answer cannot be read: {error}")


def refused(status_code: object, message: object) -> Failure:
    """Return the failure for an error that a server reports.

    Args:
        status_code: HTTP status; anything but an integer counts as 500.
        message: the server's error message.
    """
    code = status_code if isinstance(status_code, int) else 500
    reason = " ".join(str(message).split())[:300]
    status, _ = parsing.explain(1, f"error: {reason}\n".encode(errors="replace"))
    return Failure(status, f"HTTP {code}: {reason}")


def error_message(body: str) -> str:
    """Return the error message in the body of a refused request: usually ``{"error": {"message": …}}``."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body
