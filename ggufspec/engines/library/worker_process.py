"""A worker as its engine sees it: started, asked, watched, ended; its death becomes a Failure."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from ggufspec import proc
from ggufspec.domain import Status
from ggufspec.engines.failures import Failure, Tail, explain
from ggufspec.engines.library.messages import Refusal, Reply, Request
from ggufspec.errors import ChildCrashedError
from ggufspec.llama.install import program_environment

_PYTHON = re.compile("PYTHON[A-Z]*")  # the interpreter's own variables
_DYING_S = 2.0  # from a closed channel to the end of the process


@dataclass(kw_only=True)
class Link:
    """A running worker; see ``start``. Its log holds what library and worker wrote to standard error."""

    log: Path
    pid: int
    _channel: Connection
    _poll: Callable[[], int | None]
    _resources: ExitStack
    _tail: Tail
    _is_waiting: bool = False  # for the answer to a request

    @property
    def is_usable(self) -> bool:
        """Whether the process runs and owes no answer, which would be taken for that to another request."""
        return self._poll() is None and not self._is_waiting

    def ask(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        """Return the answer to a request.

        Whatever else ends the wait, Ctrl-C included, leaves a worker that is not usable and has to be closed.

        Raises:
            Failure: the worker refused, died, or takes longer than ``timeout_s``.
        """
        self._is_waiting = True
        try:
            self._channel.send(request)
            if not self._channel.poll(timeout_s):
                raise Failure(Status.TIMED_OUT, f"killed after {timeout_s:g} s")
            reply: Reply = self._channel.recv()
        except (EOFError, ConnectionError) as error:
            raise self._death() from error
        self._is_waiting = False
        if isinstance(reply, Refusal):
            raise Failure(reply.status, reply.reason)
        return reply

    def read_log(self) -> bytes:
        """Return what was logged since the last call."""
        return self._tail.read()

    def peek_log(self) -> bytes:
        """Return the same, and return it again next time."""
        return self._tail.peek()

    def close(self) -> None:
        """End the process; its log goes with it."""
        self._resources.close()

    def _death(self) -> Failure:
        deadline = time.monotonic() + _DYING_S
        while self._poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        returncode = self._poll()
        if returncode is None:
            return Failure(Status.CRASHED, "the worker has closed its channel")
        return Failure(*explain(returncode, self._tail.peek()))


def start(command: Sequence[str]) -> Link:
    """Start a worker in an empty folder, with nothing of the user's llama.cpp settings in sight.

    Its standard output is one end of a pair of sockets, which nobody else can reach.

    Raises:
        Failure: the system does not start it.
    """
    with ExitStack() as resources:
        folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="ggufspec-")))
        scratch, log = folder / "home", folder / "worker.log"
        scratch.mkdir()
        ours, theirs = socket.socketpair()
        channel = resources.enter_context(Connection(ours.detach()))
        with theirs, log.open("wb") as err:
            try:
                child = resources.enter_context(
                    proc.spawn(
                        command,
                        stdout=theirs.fileno(),
                        stderr=err,
                        env=worker_environment(scratch),
                        cwd=scratch,
                    )
                )
            except ChildCrashedError as error:
                raise Failure(Status.FAILED, error.message) from error
        link = Link(
            log=log,
            pid=child.pid,
            _channel=channel,
            _poll=child.poll,
            _resources=ExitStack(),
            _tail=Tail(log=log),
        )
        link._resources = resources.pop_all()  # noqa: SLF001  # the link owns from here on
        return link


def worker_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a worker, in which Python works as here and finds this very package.

    Args:
        scratch: an empty folder that stands in for the user's configuration.
    """
    package = str(Path(__file__).parents[3])
    python = {name: value for name, value in os.environ.items() if _PYTHON.fullmatch(name)}
    paths = os.pathsep.join(filter(None, (package, python.get("PYTHONPATH"))))
    return {
        **program_environment(scratch),
        **python,
        "PYTHONPATH": paths,
        "GGML_NO_BACKTRACE": "1",  # a debugger would be asked for one
    }
