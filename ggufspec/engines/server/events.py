"""What a llama-server of any era sends while it answers, checked: events of a stream, and errors.

httpx2's ``EventSource`` is not used. It follows the standard for event streams, and so skips the field
``error``, in which old builds report a failure, and every line that is not an event, which the record of a
run keeps. It also yields nothing before an event is complete, so that a server that sends single bytes would
never reach the time limit of a request.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ggufspec.domain import Round, Status
from ggufspec.engines.failures import Failure, refused

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
"""Tokens."""
Number = Annotated[int, msgspec.Meta(ge=-1 << 31, le=1 << 31)]
"""Tokens, or a negative number where llama.cpp has not counted them."""
_END = "[DONE]"  # of streams that follow OpenAI's form


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


class Event(msgspec.Struct, frozen=True):
    """One event of a completion's stream."""

    content: str | None = None
    tokens: tuple[int, ...] | None = None
    timings: Timings | None = None
    stop: bool = False
    stop_type: str | None = None
    stopped_eos: bool = False  # older than ``stop_type``
    truncated: bool = False
    tokens_evaluated: Number | None = None
    error: Any = None
    code: Any = None  # in old builds, an error stands where the event should
    message: Any = None

    @property
    def figures(self) -> Timings:
        """The timings, empty where there are none."""
        return self.timings or Timings()

    @property
    def draft(self) -> Round:
        """Tokens drafted and accepted so far."""
        return Round(self.figures.draft_n or 0, self.figures.draft_n_accepted or 0)

    @property
    def failure(self) -> Failure | None:
        """What the server reports in the middle of its answer."""
        if self.error is not None:
            error = self.error if isinstance(self.error, dict) else {"message": self.error}
            return refused(error.get("code"), error.get("message"))
        if self.code is not None and self.message is not None:
            return refused(self.code, self.message)
        return None


def event_text(line: str) -> str | None:
    """Return what a line of a stream carries, ``data: {…}`` or in old builds ``error: {…}``.

    None for what is not an event: an empty line, a comment, another field, the word that ends a stream.
    """
    field, _, content = line.partition(":")
    content = content.strip()
    return content if field in {"data", "error"} and content != _END else None


def read_event(text: str) -> Event:
    """Return an event.

    Raises:
        Failure: it is not JSON, or something in it is of another type.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> Failure:
    """Return the failure of an answer that is not what llama.cpp's servers send."""
    return Failure(Status.FAILED, f"the server's answer cannot be read: {error}")


_decoder = msgspec.json.Decoder(Event)
