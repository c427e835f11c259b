"""Start, watch and end one llama-server on loopback, which only this process can use."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggufspec import machine, proc, temporary
from ggufspec.domain import Failure, RequestOutcome, RunSpec, Status
from ggufspec.errors import ChildCrashedError
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install, program_environment
from ggufspec.llama.logs import MOST_SERVER_LOG_BYTES, LogTail, parsing
from ggufspec.llama.rpc import workers
from ggufspec.llama.server.answers import refused
from ggufspec.llama.server.client import RequestError, ServerAnswer, ServerClient, path_of

_HOST = "127.0.0.1"
_ATTEMPTS = 3  # to get a port
_PORTS = 100  # that are tried, one after the other
_POLL_S = 0.02
_EXIT_S = 2.0  # for the process to end after its connection broke
_LOGGING_S = 0.25  # the server logs in a separate thread, shortly after it answers
_LOADED = b"listening on http"  # the last line of a load since b2900; older builds log without a thread
_LISTENING = b"listening"  # in the log of every build, once it has its port
_KEY_TAIL = "-key"  # servers log the last four characters of their key
_HEALTH_S = 2.0


class PortTakenError(Failure):
    """Another program answers on the port."""

    def __init__(self, port: int) -> None:
        super().__init__(Status.FAILED, f"another program uses the port {port} on {_HOST}")


@dataclass(kw_only=True)
class Server:
    """A running llama-server with its models loaded; see ``start``."""

    client: ServerClient
    log: Path
    started_s: float  # by the monotonic clock
    load_ms: float
    _poll: Callable[[], int | None]
    _resources: ExitStack
    _tail: LogTail

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._poll() is None

    def get(self, path: str) -> bytes | None:
        """Return what a read-only path answers; None if this server does not have it.

        Raises:
            Failure: the server died or did not answer in time.
        """
        answer = self._ask(path)
        return answer.content if answer.is_ok else None

    def post(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> bytes:
        """Return the answer to a question.

        Raises:
            Failure: the server died, refused the request, or did not answer in time.
        """
        answer = self._ask(path, body, timeout_s=timeout_s)
        if not answer.is_ok:
            raise refused(answer.code, answer.error)
        return answer.content

    def stream_lines(
        self, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Generator[tuple[float, str], None, None]:
        """Request a completion; yield its lines as they arrive, see ``ServerClient.stream_lines``.

        Raises:
            Failure: the server died, refused the request, or sent nothing for longer than ``timeout_s``.
        """
        try:
            yield from self.client.stream_lines(path_of(body), body, timeout_s=timeout_s)
        except RequestError as error:
            raise self.failure(error) from error

    def _ask(
        self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> ServerAnswer:
        try:
            return self.client.ask(path, body, timeout_s=timeout_s)
        except RequestError as error:
            raise self.failure(error) from error

    def failure(self, error: RequestError) -> Failure:
        """Return why a request was refused, or why a connection broke or timed out."""
        if error.code is not None:
            return refused(error.code, error.reason)
        if error.outcome is RequestOutcome.TIMED_OUT:
            return Failure(Status.TIMED_OUT, "no answer in time; the server was killed")
        return self.await_death() or Failure(
            Status.FAILED, f"the connection to the server broke: {error.reason}"
        )

    def await_death(self) -> Failure | None:
        """Return why the process ended, after a connection to it broke; None if it still runs 2 s later."""
        deadline = time.monotonic() + _EXIT_S
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self.death()

    def death(self) -> Failure | None:
        """Return why the process ended; None while it runs."""
        returncode = self._poll()
        return None if returncode is None else Failure(*parsing.explain(returncode, self.log.read_bytes()))

    def read_log(self, until: bytes = b"") -> bytes:
        """Return the bytes logged since the last call; wait up to 0.25 s until they contain ``until``."""
        self.await_logged(until)
        return self._tail.read()

    def await_logged(self, words: bytes) -> None:
        """Wait up to 0.25 s until ``words`` are in what was logged since the last ``read_log``."""
        deadline = time.monotonic() + _LOGGING_S
        while words not in self._tail.peek() and self.is_alive and time.monotonic() < deadline:
            time.sleep(_POLL_S / 4)

    def close(self) -> None:
        """End the process and remove its files."""
        self._resources.close()


def start(load: RunSpec, install: Install, *, timeout_s: float | None = None) -> Server:
    """Start a server and wait until it answers.

    The port is reserved with a bound socket that never listens. Beside it, only a program of the same user
    that asks for this port can bind. If another program gets the port anyway, the server is started again.
    The API key is in a file that only this user can read.

    Raises:
        Failure: it did not load, or not within ``timeout_s``. Its ``log`` is the server's output.
        GgufspecError: the install has no server, or the server lacks a flag.
    """
    workers.require_workers(load)
    for _ in range(_ATTEMPTS):
        with suppress(PortTakenError):
            return _start_with_key(load, install, timeout_s)
    raise Failure(Status.FAILED, f"no free port on {_HOST} after {_ATTEMPTS} attempts")


def start_printed(argv: Sequence[str], *, port: int, timeout_s: float | None = None) -> Server:
    """Start a server by the command that users are given, without a key, and wait until it answers.

    Raises:
        PortTakenError: another program has the port.
        Failure: it did not load, or not within ``timeout_s``.
    """
    with ExitStack() as resources:
        scratch = resources.enter_context(temporary.folder())
        return _start(argv, resources, scratch, port=port, key=None, timeout_s=timeout_s)


def find_free_ports(first: int) -> Iterator[int]:
    """Yield those of the hundred ports from ``first`` on that no program has."""
    for port in range(first, first + _PORTS):
        with socket.socket() as holder, suppress(OSError):
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((_HOST, port))
            holder.close()
            yield port


def readable_argv(load: RunSpec, install: Install) -> tuple[str, ...]:
    """Return a server's command with placeholders for the values that change with each start."""
    words = commands.server_argv(load, install, port=0, key_file=Path("KEY_FILE"), slots_dir=Path("SLOTS"))
    before = ("", *words)
    return tuple("PORT" if flag == "--port" else word for flag, word in zip(before, words, strict=False))


def _start_with_key(load: RunSpec, install: Install, timeout_s: float | None) -> Server:
    with ExitStack() as resources:
        scratch = resources.enter_context(temporary.folder())
        slots = scratch / "slots"
        slots.mkdir()
        key, key_file = f"{secrets.token_hex(24)}{_KEY_TAIL}", scratch / "key"
        key_file.touch(mode=0o600)
        key_file.write_text(f"{key}\n")
        port = resources.enter_context(_reserved_port())
        argv = commands.server_argv(load, install, port=port, key_file=key_file, slots_dir=slots)
        server = _start(argv, resources, scratch, port=port, key=key, timeout_s=timeout_s)
        key_file.unlink()  # it has been read
        return server


def _start(
    argv: Sequence[str],
    resources: ExitStack,
    scratch: Path,
    *,
    port: int,
    key: str | None,
    timeout_s: float | None,
) -> Server:
    """Start a server, wait until it answers, and make sure that it does; it takes the resources over.

    Raises:
        PortTakenError: another program has the port.
        Failure: it did not load, or not in time; with the server's output.
    """
    started_s = time.monotonic()
    home, log = scratch / "home", scratch / "server.log"
    home.mkdir()
    try:
        with log.open("ab") as file:
            child = resources.enter_context(
                proc.spawn(
                    argv,
                    stdout=file,
                    stderr=file,
                    env=program_environment(home),
                    cwd=home,
                    most_file_bytes=MOST_SERVER_LOG_BYTES,
                )
            )
    except ChildCrashedError as error:
        raise Failure(Status.FAILED, error.message) from error
    client = ServerClient(f"http://{_HOST}:{port}", key, timeout_s=timeout_s)
    server = Server(
        client=resources.enter_context(closing(client)),
        log=log,
        started_s=started_s,
        load_ms=0.0,
        _poll=child.poll,
        _resources=ExitStack(),
        _tail=LogTail(log=log),
    )
    try:
        _await_health(server, port, timeout_s)
        if key is None:
            _check_listener(server, port)
        else:
            _check_key(server, port)
            server.await_logged(_LOADED)
    except Failure as failure:
        failure.log = server.log.read_bytes()
        raise
    server._resources = resources.pop_all()  # noqa: SLF001  # it closes them from here on
    return server


def _await_health(server: Server, port: int, timeout_s: float | None) -> None:
    """Wait until a server answers, and set its ``load_ms``.

    Raises:
        Failure: it ended, or did not answer in time.
        PortTakenError: another program has the port.
    """
    while True:
        if not server.is_alive:
            if b"couldn't bind" in server.log.read_bytes():
                raise PortTakenError(port)
            raise server.failure(
                RequestError(RequestOutcome.DISCONNECTED, "the server ended while it loaded")
            )
        with suppress(RequestError):
            if server.client.ask("/health", timeout_s=_HEALTH_S).is_ok:
                break
        if timeout_s is not None and time.monotonic() > server.started_s + timeout_s:
            raise Failure(Status.TIMED_OUT, "killed while it was loading")
        time.sleep(_POLL_S)
    server.load_ms = (time.monotonic() - server.started_s) * 1000


def _check_key(server: Server, port: int) -> None:
    """Make sure that the server that answers is the one that was started: only that one knows the key.

    Raises:
        Failure: it ended.
        PortTakenError: another server answered.
    """
    try:
        answer = server.client.ask("/tokenize", {"content": ""}, with_key=False)
    except RequestError as error:
        raise server.failure(error) from error
    if not answer.refuses_key or not server.is_alive:
        raise PortTakenError(port)  # another server answered


def _check_listener(server: Server, port: int) -> None:
    """Make sure that the server that answers is the one that was started, where no key tells.

    Raises:
        PortTakenError: another server answered, or both have the port.
    """
    server.await_logged(_LISTENING)
    has_port = _LISTENING in server.log.read_bytes() and server.is_alive
    # llama-server sets SO_REUSEPORT: two of one user can listen on a port, and the system deals requests out.
    if not has_port or (machine.count_listeners(port) or 1) > 1:
        raise PortTakenError(port)


@contextmanager
def _reserved_port() -> Iterator[int]:
    """Reserve a free port for a program that is about to start."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((_HOST, 0))
        yield holder.getsockname()[1]
