"""How long other hosts are waited for: the Hub's, and those that publish releases of llama.cpp."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from ggufspec.units import format_duration

T = TypeVar("T")

CONNECT_S = 4.0
"""For a connection, the look-up of the host's name included, which the HTTP library's own limit leaves out. A
packet that is lost is sent again after 1 and 3 s."""
SILENT_S = 10.0
"""How long a host may send nothing; huggingface_hub waits as long for the next part of a file."""
ANSWER_S = 60.0
"""For a complete answer, from the request to its last byte."""

connected: ContextVar[threading.Event | None] = ContextVar("connected", default=None)
"""Of a request that ``within`` limits: set once there is a connection for it."""


class NoConnectionError(ConnectionError):
    """There was no connection in time."""


class BrokenAnswerError(ConnectionError):
    """An answer ended too early; the HTTP library notices that only where it knows the length."""


class SlowAnswerError(BrokenAnswerError):
    """An answer took too long, or its body came too slowly."""


def within(action: Callable[[], T], answer_s: float) -> T:
    """Return what ``action`` returns, which asks a host; headers, too, may come a byte at a time.

    Raises:
        NoConnectionError: the host, or the proxy, did not even take the connection.
        SlowAnswerError: it took longer. The request goes on in the background, and its answer is not used.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    is_connected = threading.Event()

    def run() -> None:
        connected.set(is_connected)
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001  # it is raised in the caller's thread
            errors.append(error)
        is_connected.set()  # or needed no more

    thread = threading.Thread(target=run, daemon=True)  # so that a command can end without it
    thread.start()
    if not is_connected.wait(CONNECT_S):
        raise NoConnectionError(f"no connection within {format_duration(CONNECT_S)}")
    thread.join(answer_s)
    if errors and type(errors[0]).__name__ == "ReadTimeout":  # the HTTP library's, which is slow to import
        raise SlowAnswerError(f"nothing for {format_duration(SILENT_S)}") from errors[0]
    if errors:
        raise errors[0]
    if not results:
        raise SlowAnswerError(f"no complete answer within {format_duration(answer_s)}")
    return results[0]


def watch(request: Any) -> None:
    """Let ``within`` know when a request has its connection; a hook of HTTP clients."""
    if (event := connected.get()) is None:
        return

    def note(step: str, _: object) -> None:
        if step.startswith("http"):  # what follows TCP and TLS: http11.send_request_headers.started
            event.set()

    request.extensions["trace"] = note
