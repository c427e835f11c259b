"""The error and its hint for each way in which a run can fail."""

from __future__ import annotations

from ggufspec import errors
from ggufspec.domain import Status
from ggufspec.llama.rpc import workers

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


def failure_error(status: Status, message: str, otherwise: str | None = None) -> errors.GgufspecError:
    """Return the error for a status, with its own hint or ``otherwise``."""
    return _ERRORS[status](message, _HINTS.get(status, otherwise))
