"""Every error that a user can meet, with its exit code and a hint.

    GgufspecError                 1   anything that has no class of its own
    ├── NoInstallError            3   no usable llama.cpp was found
    ├── BuildError                4   llama.cpp did not compile or did not survive its smoke test
    ├── SourceError               5   llama.cpp's source is not to be had, or not what its hash says
    ├── ModelFileError            6   a model file is missing, truncated or no GGUF
    ├── DrafterRefusedError       7   llama.cpp will not let this drafter draft for this target
    ├── ContextTooSmallError      8   prompt and answer do not fit into the context
    ├── ChildCrashedError         9   a llama.cpp program died of a signal or reported failure
    ├── ChildTimedOutError       10   a llama.cpp program outlived its time-out
    ├── OutOfMemoryError         11   memory ran out, on the host or on a GPU
    ├── DiskFullError            12   no room to write results, logs or builds
    ├── ResultsError             13   a stored run is missing or unreadable
    ├── LogError                 14   a log holds nothing that llama.cpp writes
    ├── SummaryLostError         15   a program succeeded, but its summary never arrived
    └── DraftingInactiveError    16   a drafting run drafted nothing

click itself answers a wrong command line with 2; Ctrl-C ends with 130, SIGTERM with 143.
"""

from __future__ import annotations

from typing import ClassVar


class GgufspecError(Exception):
    """Base of all errors that are shown to users.

    Args:
        message: what happened, in one line.
        hint: what to do about it, in one line, or None.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NoInstallError(GgufspecError):
    """No usable llama.cpp was found."""

    exit_code = 3


class BuildError(GgufspecError):
    """llama.cpp did not compile, or what was compiled does not work."""

    exit_code = 4


class SourceError(GgufspecError):
    """llama.cpp's source could not be fetched, verified or unpacked."""

    exit_code = 5


class ModelFileError(GgufspecError):
    """A model file is missing, truncated or not a GGUF."""

    exit_code = 6


class DrafterRefusedError(GgufspecError):
    """llama.cpp refuses this drafter for this target."""

    exit_code = 7


class ContextTooSmallError(GgufspecError):
    """Prompt, answer and draft do not fit into the context."""

    exit_code = 8


class ChildCrashedError(GgufspecError):
    """A llama.cpp program died of a signal or exited with a failure."""

    exit_code = 9


class ChildTimedOutError(GgufspecError):
    """A llama.cpp program ran longer than it was allowed to."""

    exit_code = 10


class OutOfMemoryError(GgufspecError):
    """Memory ran out, on the host or on a GPU."""

    exit_code = 11


class DiskFullError(GgufspecError):
    """No room is left to write to."""

    exit_code = 12


class ResultsError(GgufspecError):
    """A stored run is missing, unreadable or not comparable."""

    exit_code = 13


class LogError(GgufspecError):
    """A log holds nothing that llama.cpp writes."""

    exit_code = 14


class SummaryLostError(GgufspecError):
    """A program ended well, but the end of its log never reached the disk."""

    exit_code = 15


class DraftingInactiveError(GgufspecError):
    """A drafting run drafted nothing."""

    exit_code = 16
