"""Why a llama.cpp program failed, from its log and its exit code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ggufspec import proc
from ggufspec.domain import Status
from ggufspec.llama.logs.lines import LogLine, hits


class FailureCause(NamedTuple):
    """The status of a failed run, and the line of the log that shows it."""

    status: Status
    line: str


_SYMPTOMS: Mapping[Status, tuple[str, ...]] = {
    Status.DISK_FULL: ("No space left on device", "Disk quota exceeded"),
    Status.OUT_OF_MEMORY: (
        "out of memory",
        "failed to allocate",
        "insufficient memory",  # ggml_aligned_malloc, before an assertion fails
        "unable to allocate",
        "annot allocate memory",
        "std::bad_alloc",
        "ErrorOutOf",  # Vulkan: DeviceMemory, HostMemory
        "OutOfMemory",  # Metal
    ),
    Status.DRAFTER_REFUSED: (
        "draft model vocab",
        "draft vocab vocab",
        "draft vocabs are not compatible",
        "draft model special tokens",
        "draft vocab special tokens",
        "draft model bos tokens",
        "draft model eos tokens",
        "incompatible with the speculative",
        "model doesn't contain MTP layers",
        "draft model is not eagle3",
        "exceeds target n_layer",  # EAGLE3: a layer of the target that a head reads
        "MTP input row width must match",
        "layer input tensor is null",  # of an architecture whose layers a head cannot read
        "draft has no confidence head",
        "failed to initialize speculative decoding",
    ),
    Status.PROMPT_TOO_LONG: (
        "prompt is too long",
        "prompt too long",
        "prompt exceeds the",
        "request exceeds the available context",
        "exceeds the available context size",
        "input is too large to process",
    ),
    Status.WORKER_UNREACHABLE: ("Failed to connect to ", "Failed to parse endpoint", "Cannot resolve host"),
    Status.WORKER_MISMATCH: ("RPC server version mismatch", "RPC handshake failed"),
    Status.WORKER_LOST: ("Remote RPC server crashed or returned malformed response",),
    Status.LOAD_FAILED: (
        "failed to open",
        "error loading model",
        "failed to load",
        "unable to load",
        "unknown model architecture",
        "failed to create context",
        "failed to create llama_context",
        "invalid value for main_gpu",
    ),
    Status.CRASHED: (
        "GGML_ASSERT",
        "GGML_ABORT",
        "CUDA error",
        "terminate called",
        "Segmentation fault",
        "Illegal instruction",
        ".cpp:",  # where in the source an assertion failed
        ".cu:",
        ".c:",
    ),
    Status.FAILED: (
        "unknown argument",
        "invalid argument",
        "error while handling argument",
        "argument has been removed",
        "legacy speculative option",  # these of ik_llama.cpp
        "speculative stage",
    ),
}
"""Root causes first: too little memory also makes a load fail, and that may end in a crash."""

_LAST_BYTES = 1 << 20  # the reason of a failure is near the end
_HARMLESS = (
    "pinned memory",  # only slows copies
    "mlock",
    "tokens will be translated",  # drafters with another vocabulary, b6045 to b9108
)
_OWN_WORDS = re.compile(  # beginnings that lines of other programs have too, and one of ggml's
    r"(?:\S{1,300}:\d+: )?(?:error|what\(\):|GGML_|CUDA error|terminate called|Segmentation|Illegal instr"
    r"|alloc_tensor_range: )"
    r"|\S{1,300}\.(?:cpp|cu|c):\d+: "
)


def diagnose(text: str | bytes) -> FailureCause | None:
    """Return why a run failed; None if the log does not show it.

    Only for failed runs: a successful run may have logged the same messages as warnings.

    Args:
        text: the log as it was captured.
    """
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    data = data[-_LAST_BYTES:]
    for status, needles in _SYMPTOMS.items():
        lines = (line for needle in needles if (line := _first(data, needle)) is not None)
        first = min(lines, key=lambda line: line.start, default=None)
        if first is not None:
            return FailureCause(status, first.message.strip())
    return None


def explain(returncode: int, log: bytes) -> tuple[Status, str]:
    """Return why a program failed, from its log or else from its exit code.

    Args:
        returncode: not 0; negative if a signal ended the program.
        log: the program's standard error.
    """
    name = proc.signal_name(-returncode) if returncode < 0 else None
    if name == "SIGXFSZ":  # such a log may say anything
        return Status.LOG_TOO_LARGE, "it printed more than a run may, and was ended by SIGXFSZ"
    diagnosis = diagnose(log)
    if diagnosis is not None:
        return diagnosis
    if name == "SIGKILL":
        return Status.OUT_OF_MEMORY, "killed by SIGKILL, most likely by the system because memory ran out"
    if name is not None:
        return Status.CRASHED, f"died of {name}"
    return Status.FAILED, f"exit code {returncode}, and the log does not say why"


def _first(data: bytes, needle: str) -> LogLine | None:
    return next((line for line in hits(data, needle.encode()) if _is_report(line, needle)), None)


def _is_report(line: LogLine, needle: str) -> bool:
    """Whether a line is llama.cpp's own, not the text of a prompt or an answer."""
    message = line.message.strip()
    if line.is_text or any(harmless in message for harmless in _HARMLESS):
        return False
    return line.is_familiar or message.startswith(needle) or _OWN_WORDS.match(message) is not None
