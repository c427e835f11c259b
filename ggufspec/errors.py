"""Every error that a user can meet, with its exit code and a hint.

    GgufspecError                 1   anything that has no class of its own
    ├── NoInstallError            3   no usable llama.cpp was found
    ├── BuildError                4   llama.cpp did not compile or did not survive its smoke test
    ├── SourceError               5   llama.cpp's source is not available, or does not match its hash
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
    ├── DraftingInactiveError    16   a drafting run drafted nothing
    ├── UnsupportedMethodError   17   the pair drafts by a method that ggufspec does not support yet
    ├── RepositoryNotFoundError  20   the Hub has no such repository, or hides it
    ├── RevisionNotFoundError    21   the repository has no such branch, tag or commit
    ├── RemoteFileNotFoundError  22   the repository has no such file or quant, or more than one
    ├── GatedRepositoryError     23   the repository is shown to people with access only
    ├── BadTokenError            24   the Hub does not know the access token
    ├── NetworkError             25   the Hub cannot be reached
    ├── RateLimitedError         26   the Hub asks to come back later than we wait
    ├── HubServerError           27   the Hub fails, time and again
    ├── CorruptDownloadError     28   what arrived is not the file that the Hub lists
    ├── NotCachedError           29   offline, and the file is not here
    ├── BadReferenceError        30   this text names no model
    ├── CatalogError             31   no such pair, or a catalogue that cannot be read
    ├── ConsentNeededError       32   a large download, and nobody there to agree to it
    ├── SlowerError              33   a comparison found a bench slower than it may be
    └── InconclusiveError        34   a comparison or bisection cannot decide with the runs that it has

click itself answers a wrong command line with 2. Ctrl-C ends with 130, SIGTERM with 143, a closed terminal
(SIGHUP) with 129, and a reader of standard output that is gone (``| head``) with 141.
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


class UnsupportedMethodError(GgufspecError):
    """The pair drafts by a method that ggufspec does not support yet."""

    exit_code = 17


class RepositoryNotFoundError(GgufspecError):
    """The Hub has no such repository, or does not show it to this user."""

    exit_code = 20


class RevisionNotFoundError(GgufspecError):
    """The repository has no such branch, tag or commit."""

    exit_code = 21


class RemoteFileNotFoundError(GgufspecError):
    """The repository has no such file or quant, or the name fits more than one."""

    exit_code = 22


class GatedRepositoryError(GgufspecError):
    """The repository's files are given to people with access only."""

    exit_code = 23


class BadTokenError(GgufspecError):
    """The Hub does not know the access token."""

    exit_code = 24


class NetworkError(GgufspecError):
    """The Hub cannot be reached, or stops answering."""

    exit_code = 25


class RateLimitedError(GgufspecError):
    """The Hub asks to come back later than we are ready to wait."""

    exit_code = 26


class HubServerError(GgufspecError):
    """The Hub answers with server errors, time and again."""

    exit_code = 27


class CorruptDownloadError(GgufspecError):
    """What arrived is not the file that the Hub lists."""

    exit_code = 28


class NotCachedError(GgufspecError):
    """The file is not on this machine, and the Hub may not be asked."""

    exit_code = 29


class BadReferenceError(GgufspecError):
    """A text that should name a model names none."""

    exit_code = 30


class CatalogError(GgufspecError):
    """No pair has this name, or a catalogue cannot be read."""

    exit_code = 31


class ConsentNeededError(GgufspecError):
    """A large download was asked for, and nobody is there to agree to it."""

    exit_code = 32


class SlowerError(GgufspecError):
    """One bench is slower than another by more than was allowed."""

    exit_code = 33


class InconclusiveError(GgufspecError):
    """The runs that were measured are too few, or too different, for a verdict."""

    exit_code = 34
