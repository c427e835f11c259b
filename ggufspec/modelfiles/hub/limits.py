"""Limits on the Hub, or on whatever answers in its place: how long it may take, how much it may send."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from huggingface_hub import utils

from ggufspec.errors import HubServerError
from ggufspec.units import format_bytes, format_duration

T = TypeVar("T")

CONNECT_S = 4.0
"""For a connection, the look-up of the host's name included, which the HTTP library's own limit leaves out. A
packet that is lost is sent again after 1 and 3 s."""
ANSWER_S = 60.0
"""For a complete answer of the API, from the request to its last byte."""
MOST_ANSWER_BYTES = 64 << 20
"""Of an answer of the API. The longest, a page of a repository's files, has about 1 MB."""
SLOW_S = 60.0
LEAST_BYTES_PER_S = 1 << 10
"""The least rate of a body over ``SLOW_S`` seconds: a model of 1 GB would take eleven days."""

_MOST_COMPRESSED_BYTES = 1 << 20  # not asked for; gzip expands a thousandfold at most
_connected: ContextVar[threading.Event | None] = ContextVar("connected", default=None)
"""Of a request that is limited: set once there is a connection for it."""


class NoConnectionError(ConnectionError):
    """There was no connection in time."""


class BrokenAnswerError(ConnectionError):
    """An answer ended too early; the HTTP library notices that only where it knows the length."""


class SlowAnswerError(BrokenAnswerError):
    """An answer took too long, or its body came too slowly."""


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
                raise SlowAnswerError(f"{self._bytes} bytes in {format_duration(elapsed_s)}")
            self._began_s, self._bytes = time.monotonic(), 0


def within(action: Callable[[], T], answer_s: float) -> T:
    """Return what ``action`` returns, which asks the API; headers, too, may come a byte at a time.

    Raises:
        NoConnectionError: the host, or the proxy, did not even take the connection.
        SlowAnswerError: it took longer. The request goes on in the background, and its answer is not used.
        HubServerError: the answer is too large.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    connected = threading.Event()

    def run() -> None:
        _watch_session()
        _connected.set(connected)
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            errors.append(error)
        connected.set()  # or needed no more

    thread = threading.Thread(target=run, daemon=True)  # so that a command can end without it
    thread.start()
    if not connected.wait(CONNECT_S):
        raise NoConnectionError(f"no connection within {format_duration(CONNECT_S)}")
    thread.join(answer_s)
    if errors:
        raise errors[0]
    if not results:
        raise SlowAnswerError(f"no complete answer within {format_duration(answer_s)}")
    return results[0]


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
    if (connected := _connected.get()) is not None:

        def note(event: str, _: object) -> None:
            if event.startswith("http"):  # what follows TCP and TLS: http11.send_request_headers.started
                connected.set()

        request.headers["Accept-Encoding"] = "identity"
        request.extensions["trace"] = note


def _limit_answer(response: Any) -> None:
    if _connected.get() is not None:
        is_plain = response.headers.get("Content-Encoding", "identity") == "identity"
        most_bytes = MOST_ANSWER_BYTES if is_plain else _MOST_COMPRESSED_BYTES
        response.stream = _stream_class()(response.stream, most_bytes, response.url.host)


@cache
def _stream_class() -> Any:
    """Return the class of a limited body, made from the HTTP library that huggingface_hub uses."""
    from huggingface_hub import errors

    library = __import__(errors.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])

    class LimitedStream(library.SyncByteStream):  # type: ignore[misc,name-defined]
        def __init__(self, stream: Any, most_bytes: int, host: str) -> None:
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
