"""Why a run failed, from the exit code and the log of a llama.cpp program."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ggufspec import errors, proc
from ggufspec.domain import RunSpec, Status
from ggufspec.llama.logs import parsing
from ggufspec.llama.rpc import workers

MOST_LOG_BYTES = 16 << 20
"""Of what a program prints in one run; a long run has less than 1 MB."""
MOST_SERVER_LOG_BYTES = 256 << 20
"""Of what a server, or a worker, prints in all of its runs."""

_ERRORS: dict[Status, type[errors.GgufspecError]] = {
    Status.SUMMARY_LOST: errors.SummaryLostError,
    Status.DRAFTING_INACTIVE: errors.DraftingInactiveError,
    Status.DRAFTER_REFUSED: errors.DrafterRefusedError,
    Status.PROMPT_TOO_LONG: errors.ContextTooSmallError,
    Status.LOAD_FAILED: errors.ModelFileError,
    Status.OUT_OF_MEMORY: errors.OutOfMemoryError,
    Status.DISK_FULL: errors.DiskFullError,
    Status.LOG_TOO_LARGE: errors.ChildCrashedError,
    Status.CRASHED: errors.ChildCrashedError,
    Status.FAILED: errors.ChildCrashedError,
    Status.TIMED_OUT: errors.ChildTimedOutError,
    Status.IMPLAUSIBLE: errors.ImplausibleError,
    Status.NO_TEXT: errors.ImplausibleError,
    Status.WORKER_UNREACHABLE: errors.WorkerError,
    Status.WORKER_MISMATCH: errors.WorkerError,
    Status.WORKER_BUSY: errors.WorkerError,
    Status.WORKER_LOST: errors.WorkerError,
}
_HINTS = {
    Status.OUT_OF_MEMORY: "put fewer layers on the GPU (--ngl), or use a smaller --ctx or quantization",
    Status.TIMED_OUT: "allow more time with --timeout, or ask for fewer tokens with -n",
    Status.LOG_TOO_LARGE: "leave out options after -- that make llama.cpp print more; is `ulimit -f` low?",
    Status.PROMPT_TOO_LONG: "use a larger --ctx or a shorter prompt",
    **workers.HINTS,
}


class Failure(Exception):  # noqa: N818  # it becomes a row of the results, not an error
    """A run failed; ``status`` and ``reason`` go into its Measurement.

    ``log`` is the output of a program that failed before its first run.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.log = b""


def require_workers(spec: RunSpec) -> None:
    """Make sure that the workers of a run answer: a program would wait for a busy one without end.

    Raises:
        Failure: one of them does not.
    """
    try:
        workers.check_workers(spec.own_offload.rpc)
    except workers.WorkerProblem as problem:
        raise Failure(problem.status, problem.reason) from problem


def failure_error(status: Status, message: str, otherwise: str | None = None) -> errors.GgufspecError:
    """Return the error for a status, with its own hint or ``otherwise``."""
    return _ERRORS[status](message, _HINTS.get(status, otherwise))


def explain(returncode: int, log: bytes) -> tuple[Status, str]:
    """Return why a program failed, from its log or else from its exit code.

    Args:
        returncode: not 0; negative if a signal ended the program.
        log: the program's standard error.
    """
    name = proc.signal_name(-returncode) if returncode < 0 else None
    diagnosis = None if name == "SIGXFSZ" else parsing.diagnose(log)  # such a log may say anything
    if diagnosis is not None:
        return diagnosis
    if name == "SIGXFSZ":
        return Status.LOG_TOO_LARGE, "it printed more than a run may, and was ended by SIGXFSZ"
    if name == "SIGKILL":
        return Status.OUT_OF_MEMORY, "killed by SIGKILL, most likely by the system because memory ran out"
    if name is not None:
        return Status.CRASHED, f"died of {name}"
    return Status.FAILED, f"exit code {returncode}, and the log does not say why"


def refused(status_code: object, message: object) -> Failure:
    """Return the failure for an error that a server reports.

    Args:
        status_code: HTTP status; anything but an integer counts as 500.
        message: the server's error message.
    """
    code = status_code if isinstance(status_code, int) else 500
    reason = " ".join(str(message).split())[:300]
    status, _ = explain(1, f"error: {reason}\n".encode(errors="replace"))
    return Failure(status, f"HTTP {code}: {reason}")


def error_message(body: str) -> str:
    """Return the error message in the body of a refused request: usually ``{"error": {"message": …}}``."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body


@dataclass(kw_only=True)
class LogTail:
    """The unread end of a log that a process still writes."""

    log: Path
    _reported: int = 0  # bytes that ``read`` has returned

    def peek(self) -> bytes:
        """Return the bytes logged since the last ``read``."""
        with self.log.open("rb") as file:
            file.seek(self._reported)
            return file.read()

    def read(self) -> bytes:
        """Return the same bytes and mark them as read."""
        unread = self.peek()
        self._reported += len(unread)
        return unread
