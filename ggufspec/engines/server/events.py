"""Decode what a llama-server of any era sends while it answers: the events of a stream, and errors.

httpx2's ``EventSource`` is not used. It follows the standard for event streams, so it skips the field
``error``, in which old builds report a failure, and lines that are not events, which the record of a run
keeps. It also yields nothing before an event is complete, so a server that sends single bytes would escape
the time limit.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ggufspec.domain import Round, Status
from ggufspec.engines.failures import Failure, refused

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
"""Tokens."""
Number = Annotated[int, msgspec.Meta(ge=-1 << 31, le=1 << 31)]
"""Tokens, or a negative number if llama.cpp has not counted them."""
_END = "[DONE]"  # ends streams in OpenAI's format


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
    """One event in the stream of a completion."""

    content: str | None = None
    tokens: tuple[int, ...] | None = None
    timings: Timings | None = None
    stop: bool = False
    stop_type: str | None = None
    stopped_eos: bool = False  # before ``stop_type``
    truncated: bool = False
    tokens_evaluated: Number | None = None
    error: Any = None
    code: Any = None  # old builds send an error in place of an event
    message: Any = None

    @property
    def figures(self) -> Timings:
        """The timings; empty if there are none."""
        return self.timings or Timings()

    @property
    def draft(self) -> Round:
        """Tokens drafted and accepted so far."""
        return Round(self.figures.draft_n or 0, self.figures.draft_n_accepted or 0)

    @property
    def failure(self) -> Failure | None:
        """The error that the server reports within its answer, if any."""
        if self.error is not None:
            error = self.error if isinstance(self.error, dict) else {"message": self.error}
            return refused(error.get("code"), error.get("message"))
        if self.code is not None and self.message is not None:
            return refused(self.code, self.message)
        return None


def event_text(line: str) -> str | None:
    """Return the content of a line of a stream: ``data: {…}``, or ``error: {…}`` in old builds.

    None for a line that is not an event: empty, a comment, another field, or the end of the stream.
    """
    field, _, content = line.partition(":")
    content = content.strip()
    return content if field in {"data", "error"} and content != _END else None


def read_event(text: str) -> Event:
    """Decode an event.

    Raises:
        Failure: it is not JSON, or a field has the wrong type.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise unreadable(error) from error


def unreadable(error: Exception) -> Failure:
    """Return the failure for an answer that cannot be decoded."""
    return Failure(Status.FAILED, f"the server's answer cannot be read: {error}")


_decoder = msgspec.json.Decoder(Event)
