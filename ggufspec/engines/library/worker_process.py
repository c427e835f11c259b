"""A worker from its engine's side: start it, send requests, read its log, end it.

A worker that died is reported as a Failure.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from ggufspec import proc, temporary
from ggufspec.domain import Failure, Program, Sample, Status
from ggufspec.engines.engine import read_log
from ggufspec.engines.library.messages import (
    ModelLoad,
    Prepare,
    Prepared,
    Refusal,
    WorkerReply,
    WorkerRequest,
)
from ggufspec.errors import ChildCrashedError
from ggufspec.llama.install import program_environment
from ggufspec.llama.logs import MOST_SERVER_LOG_BYTES, LogTail, parsing

_PYTHON = re.compile("PYTHON[A-Z]*")  # variables of the interpreter
_EXIT_S = 2.0  # for the process to end after its channel closed

WorkerModel = tuple[ModelLoad, bool]
"""A model of a worker; the second value is whether it is a second copy that drafts for itself."""


@dataclass(kw_only=True)
class HostedWorker:
    """A running worker; see ``start``.

    Attributes:
        pid: of its process.
        number: of the engine's worker, from 0.
        loads: its models, each with its placement by the log.
    """

    pid: int
    number: int
    loads: dict[WorkerModel, Sample] = field(default_factory=dict)
    _channel: Connection
    _poll: Callable[[], int | None]
    _tail: LogTail  # of the standard error of library and worker
    _resources: ExitStack
    _is_waiting: bool = False  # for a reply

    @property
    def is_usable(self) -> bool:
        """Whether the process runs and no reply is pending, which would be mistaken for the next one."""
        return self._poll() is None and not self._is_waiting

    def ask(self, request: WorkerRequest, *, timeout_s: float | None = None) -> WorkerReply:
        """Send a request and return the reply.

        If anything else ends the wait, such as Ctrl-C, the worker is not usable and must be closed.

        Raises:
            Failure: the request failed, the worker died, or ``timeout_s`` was exceeded.
        """
        self._is_waiting = True
        try:
            # send() leaves a view of a BytesIO in the traceback of a dead worker, which Python 3.13 reports
            self._channel.send_bytes(pickle.dumps(request))
            if not self._channel.poll(timeout_s):
                raise Failure(Status.TIMED_OUT, f"killed after {timeout_s:g} s")
            reply: WorkerReply = self._channel.recv()
        except (EOFError, ConnectionError) as error:
            raise self._death() from error
        self._is_waiting = False
        if isinstance(reply, Refusal):
            raise Failure(reply.status, reply.reason)
        return reply

    def read_log(self) -> bytes:
        """Return the bytes logged since the last call."""
        return self._tail.read()

    def close(self) -> None:
        """End the process and remove its log."""
        self._resources.close()

    def prepare(
        self, target: ModelLoad, drafters: Sequence[ModelLoad], threads: int, timeout_s: float | None
    ) -> float | None:
        """Load the models that are not loaded yet; return the seconds it took, None if all were loaded.

        Raises:
            Failure: a model cannot be loaded, a drafter is refused, or the worker died or was too slow.
        """
        requests: dict[WorkerModel, Prepare] = {(target, False): Prepare(target=target, threads=threads)}
        for drafter in drafters:  # one by one, to separate their logs
            requests[drafter, drafter == target] = Prepare(
                target=target, threads=threads, drafters=(drafter,)
            )
        load_s: float | None = None
        for key, request in requests.items():
            logged_bytes = len(self._tail.peek())
            try:
                reply = self.ask(request, timeout_s=timeout_s)
            except Failure as failure:
                raise self._explained(failure) from failure
            assert isinstance(reply, Prepared)
            if reply.load_s is not None:
                load_s = (load_s or 0.0) + reply.load_s
                self.loads.setdefault(key, read_log(self._tail.peek()[logged_bytes:], Program.PLAIN))
        return load_s

    def _explained(self, failure: Failure) -> Failure:
        """Add the reason that the library logged for a failed load, such as too little memory."""
        diagnosis = parsing.diagnose(self._tail.peek())
        if failure.status is not Status.LOAD_FAILED or diagnosis is None:
            return failure
        return Failure(diagnosis.status, f"{failure.reason}: {diagnosis.line}")

    def _death(self) -> Failure:
        deadline = time.monotonic() + _EXIT_S
        while self._poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        returncode = self._poll()
        if returncode is None:
            return Failure(Status.CRASHED, "the worker closed its channel")
        return Failure(*parsing.explain(returncode, self._tail.peek()))


def start(command: Sequence[str], *, number: int) -> HostedWorker:
    """Start a worker in an empty folder, without the user's llama.cpp settings.

    Its standard output is one end of a socket pair, which no other process can reach.

    Raises:
        Failure: the system cannot start it.
    """
    with ExitStack() as resources:
        folder = resources.enter_context(temporary.folder())
        scratch, log = folder / "home", folder / "worker.log"
        scratch.mkdir()
        engine_end, worker_end = socket.socketpair()
        channel = resources.enter_context(Connection(engine_end.detach()))
        with worker_end, log.open("wb") as err:
            try:
                child = resources.enter_context(
                    proc.spawn(
                        command,
                        stdout=worker_end.fileno(),
                        stderr=err,
                        env=worker_environment(scratch),
                        cwd=scratch,
                        most_file_bytes=MOST_SERVER_LOG_BYTES,
                    )
                )
            except ChildCrashedError as error:
                raise Failure(Status.FAILED, error.message) from error
        return HostedWorker(
            pid=child.pid,
            number=number,
            _channel=channel,
            _poll=child.poll,
            _tail=LogTail(log=log),
            _resources=resources.pop_all(),  # which the worker closes from here on
        )


def worker_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a worker, with this process's Python settings and this ggufspec on its path.

    Args:
        scratch: an empty folder to use as the user's configuration folder.
    """
    package = str(Path(__file__).parents[3])
    python = {name: value for name, value in os.environ.items() if _PYTHON.fullmatch(name)}
    paths = os.pathsep.join(filter(None, (package, python.get("PYTHONPATH"))))
    return {
        **program_environment(scratch),
        **python,
        "PYTHONPATH": paths,
        "GGML_NO_BACKTRACE": "1",  # it would start a debugger
    }
