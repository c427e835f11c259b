"""The client of llama-server and of servers like it: the only use of the HTTP library for them.

``ServerClient`` asks one question after the other, ``LoadClient`` sends many requests at once. Neither
follows redirects or uses a proxy, and each request has a connection of its own, because servers close idle
connections at any time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from ggufspec.domain import RequestOutcome
from ggufspec.llama.server.answers import error_message

if TYPE_CHECKING:
    import ssl

CHAT_PATH = "/v1/chat/completions"
_CONNECT_S = 10.0


@functools.cache  # each client would read them again, which takes longer than most questions
def _certificates() -> ssl.SSLContext:
    """Return the authorities that are trusted."""
    return httpx2.create_ssl_context(trust_env=False)


class RequestError(Exception):
    """A request got no answer, or another one than it asked for.

    Attributes:
        outcome: in which way.
        reason: the server's own words, or those of the connection.
        code: the HTTP status; None where there was no answer.
    """

    def __init__(self, outcome: RequestOutcome, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.code = code


def path_of(body: Mapping[str, Any], otherwise: str = "/completion") -> str:
    """Return where a request is sent: a chat, which has messages, to OpenAI's path for them."""
    return CHAT_PATH if "messages" in body else otherwise


class ServerAnswer(NamedTuple):
    """The complete answer to a question; ``location`` is where it redirects to, or empty."""

    code: int
    content: bytes
    location: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the server answered the question."""
        return self.code == httpx2.codes.OK

    @property
    def refuses_key(self) -> bool:
        """Whether the server wants another key."""
        return self.code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}

    @property
    def error(self) -> str:
        """The server's error message."""
        return error_message(self.content.decode(errors="replace"))


class ServerClient:
    """Questions to one server, one after the other.

    Args:
        url: of the server, without a path of its API.
        key: for the server; None for none.
        timeout_s: for each step of a request, where that names no other; None for no limit.
    """

    def __init__(self, url: str, key: str | None = None, *, timeout_s: float | None = None) -> None:
        """See the class; nothing is sent yet."""
        self.url = url
        self.key = key
        self._client = httpx2.Client(
            base_url=url,
            headers=headers_for(key),
            timeout=timeout_s,
            trust_env=False,
            verify=_certificates(),
            limits=httpx2.Limits(max_keepalive_connections=0),
        )

    def close(self) -> None:
        """Close what is open."""
        self._client.close()

    def ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        with_key: bool = True,
    ) -> ServerAnswer:
        """Return the answer to a question, of whatever HTTP status.

        Args:
            path: of the question.
            body: for POST; None for GET.
            timeout_s: None for that of the client.
            with_key: False to ask as somebody who does not know the key.

        Raises:
            RequestError: there is no answer.
        """
        try:
            response = self._client.request(
                "GET" if body is None else "POST",
                path,
                json=None if body is None else dict(body),
                timeout=httpx2.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s,
                headers=None if with_key else {"Authorization": ""},
            )
        except httpx2.HTTPError as error:
            raise _request_error(error) from error
        location = response.headers.get("location", "") if response.is_redirect else ""
        return ServerAnswer(response.status_code, response.content, location)

    def stream_lines(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Generator[tuple[float, str], None, None]:
        """Yield the seconds since the request and each line of its answer as it arrives.

        For a block of bytes that completes no line, an empty line is yielded. Close this generator to stop
        the server in the middle of an answer.

        The library's ``EventSource`` is not used here. It follows the standard for event streams, so it skips
        the field ``error``, in which old builds report a failure, and lines that are not events, which the
        record of a run keeps. It also yields nothing before an event is complete, so a server that sends
        single bytes would escape the time limit.

        Raises:
            RequestError: the request was refused, the connection broke, or nothing came for ``timeout_s``.
        """
        started = time.perf_counter()
        timeout = httpx2.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            with self._client.stream("POST", path, json=dict(body), timeout=timeout) as response:
                if response.status_code != httpx2.codes.OK:
                    raise _refusal(response.status_code, response.read())
                rest = b""
                for block in response.iter_bytes():
                    at_s = time.perf_counter() - started
                    *complete, rest = (rest + block).split(b"\n")  # texts may contain other line breaks
                    for line in complete or (b"",):  # the caller checks its time limit at each block
                        yield at_s, line.decode(errors="replace").strip()
        except httpx2.HTTPError as error:
            raise _request_error(error) from error


class LoadClient:
    """Any number of requests to one server at once.

    Args:
        url: of the server.
        key: for the server; None for none.
        transport: in place of the network, for tests.
    """

    def __init__(
        self, url: str, key: str | None = None, *, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        """See the class; nothing is sent yet."""
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers=headers_for(key),
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),  # the caller limits the complete request
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
            verify=_certificates(),
            transport=transport,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def stream_events(
        self, path: str, body: Mapping[str, Any], take: Callable[[str, float], bool]
    ) -> None:
        """Give each event of a streamed answer to a function as it arrives, until that returns False.

        The time of an event, on the clock of ``time.perf_counter``, is that of the block of bytes that
        completed it, taken before anything is decoded.

        Raises:
            RequestError: the request was refused, the connection broke, or it is no stream of events.
        """
        try:
            async with self._client.sse(path, method="POST", json=dict(body)) as events:
                response = events.response
                if response.status_code != httpx2.codes.OK:
                    raise _refusal(response.status_code, await response.aread())
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                timed = response.stream = _TimedStream(response.stream)
                messages = aiter(events)
                assert isinstance(messages, AsyncGenerator)
                async with aclosing(messages):
                    async for message in messages:
                        if not take(message.data, timed.arrived_at):
                            return
        except httpx2.HTTPError as error:
            raise _request_error(error) from error


class _TimedStream(httpx2.AsyncByteStream):
    """Passes on the blocks of a response; ``arrived_at`` is when the latest one came."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self.arrived_at = 0.0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for block in self._stream:
            self.arrived_at = time.perf_counter()
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


def headers_for(key: str | None) -> dict[str, str]:
    """Return the headers of all requests to a server."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _refusal(code: int, content: bytes) -> RequestError:
    is_busy = code == httpx2.codes.SERVICE_UNAVAILABLE
    outcome = RequestOutcome.UNAVAILABLE if is_busy else RequestOutcome.REFUSED
    return RequestError(outcome, error_message(content.decode(errors="replace")), code)


def _request_error(error: httpx2.HTTPError) -> RequestError:
    """Return what an error of the library means for a request."""
    if isinstance(error, httpx2.TimeoutException):
        outcome = RequestOutcome.TIMED_OUT
    elif isinstance(error, httpx2.SSEError):
        outcome = RequestOutcome.UNREADABLE
    elif isinstance(error, httpx2.RemoteProtocolError):
        outcome = RequestOutcome.CUT_OFF  # the server closed the connection in the middle of its answer
    else:
        outcome = RequestOutcome.DISCONNECTED
    return RequestError(outcome, str(error) or type(error).__name__)
