"""Limits on the Hub, or on whatever answers in its place: how long it may take, how much it may send."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar

from huggingface_hub import utils

from ggufspec import hosts
from ggufspec.errors import HubServerError
from ggufspec.units import format_bytes, format_duration

T = TypeVar("T")

MOST_ANSWER_BYTES = 64 << 20
"""Of an answer of the API. The longest, a list of a repository's files, has about 1 MB."""
SLOW_S = 60.0
LEAST_BYTES_PER_S = 1 << 10
"""The least rate of a body over ``SLOW_S`` seconds: a model of 1 GB would take eleven days."""

_MOST_COMPRESSED_BYTES = 1 << 20  # not asked for; gzip expands a thousandfold at most


class LeastRate:
    """Watches the rate of a body; a connection that sends a byte a second never times out by itself."""

    def __init__(self) -> None:
        """Start the first period."""
        self._began_s, self._bytes = time.monotonic(), 0

    def count(self, n_bytes: int) -> None:
        """Add what has arrived.

        Raises:
            SlowAnswerError: it is too little for the time that it took.
        """
        self._bytes += n_bytes
        elapsed_s = time.monotonic() - self._began_s
        if elapsed_s >= SLOW_S:
            if self._bytes < LEAST_BYTES_PER_S * elapsed_s:
                raise hosts.SlowAnswerError(f"{self._bytes} bytes in {format_duration(elapsed_s)}")
            self._began_s, self._bytes = time.monotonic(), 0


def within(action: Callable[[], T], answer_s: float) -> T:
    """Return what ``action`` returns, which asks the API; see ``hosts.within``.

    Raises:
        NoConnectionError, SlowAnswerError: there was no connection, or no complete answer, in time.
        HubServerError: the answer is too large.
    """
    _watch_session()
    return hosts.within(action, answer_s)


def _watch_session() -> None:
    """Let the session of huggingface_hub limit the answers to requests of ``within``, and no others.

    A notebook may use the same session; its own hooks stay.
    """
    session = utils.get_session()
    hooks = session.event_hooks
    if _limit_answer not in hooks["response"]:
        session.event_hooks = {
            "request": [*hooks["request"], _limit_request],
            "response": [*hooks["response"], _limit_answer],
        }


def _limit_request(request: Any) -> None:
    if hosts.watch(request):
        request.headers["Accept-Encoding"] = "identity"


def _limit_answer(response: Any) -> None:
    if hosts.connected.get() is not None:
        is_plain = response.headers.get("Content-Encoding", "identity") == "identity"
        most_bytes = MOST_ANSWER_BYTES if is_plain else _MOST_COMPRESSED_BYTES
        response.stream = _stream_class()(response.stream, most_bytes, response.url.host)


@cache
def _stream_class() -> Any:
    """Return the class of a limited body."""
    import httpx2  # slow to import

    class LimitedStream(httpx2.SyncByteStream):
        def __init__(self, stream: httpx2.SyncByteStream, most_bytes: int, host: str) -> None:
            self._stream, self._most_bytes, self._host = stream, most_bytes, host

        def __iter__(self) -> Iterator[bytes]:
            n_bytes = 0
            for chunk in self._stream:
                n_bytes += len(chunk)
                if n_bytes > self._most_bytes:
                    raise HubServerError(
                        f"{self._host} answers with more than {format_bytes(self._most_bytes)}",
                        "is HF_ENDPOINT a Hub?",
                    )
                yield chunk

        def close(self) -> None:
            self._stream.close()

    return LimitedStream
