"""Every error that a user can meet, with its exit code and a hint.

    GgufspecError                 1   any other error
    ├── NoInstallError            3   no usable llama.cpp was found
    ├── BuildError                4   llama.cpp did not compile or failed its smoke test
    ├── SourceError               5   llama.cpp's source is not available, or does not match its hash
    ├── ModelFileError            6   a model file is missing, truncated or not a GGUF
    ├── DrafterRefusedError       7   llama.cpp refuses this drafter for this target
    ├── ContextTooSmallError      8   prompt and answer do not fit into the context
    ├── ChildCrashedError         9   a llama.cpp program was killed by a signal or exited with a failure
    ├── ChildTimedOutError       10   a llama.cpp program exceeded its time limit
    ├── OutOfMemoryError         11   memory ran out, on the host or on a GPU
    ├── DiskFullError            12   the disk is full
    ├── ResultsError             13   stored results are missing or unreadable
    ├── LogError                 14   a log contains no output of llama.cpp, or no figures
    ├── SummaryLostError         15   a program succeeded, but its log has no summary
    ├── DraftingInactiveError    16   nothing was drafted in a drafting run
    ├── UnsupportedMethodError   17   ggufspec does not support the pair's drafting method yet
    ├── ImplausibleError         18   figures cannot be true, or tokens were counted and no text came
    ├── RepositoryNotFoundError  20   the repository does not exist on the Hub, or is private
    ├── RevisionNotFoundError    21   the branch, tag or commit does not exist
    ├── RemoteFileNotFoundError  22   the file or quant does not exist, or the name is ambiguous
    ├── GatedRepositoryError     23   the repository is gated, and access has not been granted
    ├── BadTokenError            24   the Hub rejected the access token
    ├── NetworkError             25   the Hub cannot be reached
    ├── RateLimitedError         26   the Hub limits requests for longer than ggufspec waits
    ├── HubServerError           27   the Hub repeatedly answered with server errors
    ├── CorruptDownloadError     28   a downloaded file differs from what the Hub lists
    ├── NotCachedError           29   the file is not in the cache, and the network may not be used
    ├── BadReferenceError        30   not a model reference
    ├── CatalogError             31   the pair does not exist, or a catalogue cannot be read
    ├── ConsentNeededError       32   a large download, a deletion or an upload needs confirmation
    ├── SlowerError              33   a bench is slower than the limit allows
    ├── InconclusiveError        34   the measured runs do not decide a comparison, tuning or bisection
    ├── DoubtfulError            35   a verdict is in doubt or undecided, and --strict was given
    ├── VerificationError        36   a bundle's figures do not follow from its raw logs, or it was changed
    ├── ChangedFileError         37   a file on the Hub is not the one that a pair is pinned to
    ├── WorkerError              38   a worker on another machine cannot be used, or was lost
    ├── ConverterError           39   llama.cpp's converter cannot be installed, or fails its test
    ├── ConversionError          40   llama.cpp's converter does not convert a checkpoint
    ├── TimeLimitError           41   --max-time is too short for the model on this machine
    └── ChartError               42   a chart cannot be drawn on this machine

A wrong command line exits with 2 (click's own code). Ctrl-C exits with 130, SIGTERM with 143, a closed
terminal (SIGHUP) with 129, and closed standard output (``| head``) with 141.
"""

from __future__ import annotations

from typing import ClassVar


class GgufspecError(Exception):
    """Base class of all errors shown to users.

    Args:
        message: what happened, in one line.
        hint: what to do about it, in one line, or None; notebooks and tracebacks show it below the message.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")


class NoInstallError(GgufspecError):
    """No usable llama.cpp was found."""

    exit_code = 3


class BuildError(GgufspecError):
    """llama.cpp did not compile, or the build does not work."""

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
    """The prompt, answer and draft do not fit into the context."""

    exit_code = 8


class ChildCrashedError(GgufspecError):
    """A llama.cpp program was killed by a signal or exited with a failure."""

    exit_code = 9


class ChildTimedOutError(GgufspecError):
    """A llama.cpp program exceeded its time limit."""

    exit_code = 10


class OutOfMemoryError(GgufspecError):
    """Memory ran out, on the host or on a GPU."""

    exit_code = 11


class DiskFullError(GgufspecError):
    """The disk is full."""

    exit_code = 12


class ResultsError(GgufspecError):
    """Stored results are missing, unreadable or not comparable."""

    exit_code = 13


class LogError(GgufspecError):
    """A log contains no output of llama.cpp or no figures, or cannot be read."""

    exit_code = 14


class SummaryLostError(GgufspecError):
    """A program succeeded, but the end of its log is missing."""

    exit_code = 15


class DraftingInactiveError(GgufspecError):
    """Nothing was drafted in a drafting run."""

    exit_code = 16


class UnsupportedMethodError(GgufspecError):
    """ggufspec does not support the pair's drafting method yet."""

    exit_code = 17


class ImplausibleError(GgufspecError):
    """The figures of a run cannot be true, or tokens were counted and no text came."""

    exit_code = 18


class RepositoryNotFoundError(GgufspecError):
    """The repository does not exist on the Hub, or is private."""

    exit_code = 20


class RevisionNotFoundError(GgufspecError):
    """The branch, tag or commit does not exist."""

    exit_code = 21


class RemoteFileNotFoundError(GgufspecError):
    """The file or quant does not exist, or the name is ambiguous."""

    exit_code = 22


class GatedRepositoryError(GgufspecError):
    """The repository is gated, and access has not been granted."""

    exit_code = 23


class BadTokenError(GgufspecError):
    """The Hub rejected the access token."""

    exit_code = 24


class NetworkError(GgufspecError):
    """The Hub or a server cannot be reached, or stopped answering."""

    exit_code = 25


class RateLimitedError(GgufspecError):
    """The Hub limits requests for longer than ggufspec waits."""

    exit_code = 26


class HubServerError(GgufspecError):
    """The Hub repeatedly answered with server errors."""

    exit_code = 27


class CorruptDownloadError(GgufspecError):
    """A downloaded file differs from what the Hub lists."""

    exit_code = 28


class NotCachedError(GgufspecError):
    """The file is not in the cache, and the network may not be used."""

    exit_code = 29


class BadReferenceError(GgufspecError):
    """A text is not a model reference."""

    exit_code = 30


class CatalogError(GgufspecError):
    """The pair does not exist, or a catalogue cannot be read."""

    exit_code = 31


class ConsentNeededError(GgufspecError):
    """A large download, a deletion or an upload needs confirmation."""

    exit_code = 32


class SlowerError(GgufspecError):
    """A bench is slower than the limit allows."""

    exit_code = 33


class InconclusiveError(GgufspecError):
    """The runs that were measured are too few, or too different, for a verdict."""

    exit_code = 34


class DoubtfulError(GgufspecError):
    """A verdict is in doubt or undecided, and --strict was given."""

    exit_code = 35


class VerificationError(GgufspecError):
    """A bundle's figures do not follow from its raw logs, or a file does not match its hash."""

    exit_code = 36


class ChangedFileError(GgufspecError):
    """A file on the Hub is not the one that the catalogue or an earlier fetch pinned."""

    exit_code = 37


class WorkerError(GgufspecError):
    """A worker that lends its devices over the network cannot be used, or was lost."""

    exit_code = 38


class ConverterError(GgufspecError):
    """The Python environment of llama.cpp's converter cannot be made, or the converter fails its test."""

    exit_code = 39


class ConversionError(GgufspecError):
    """llama.cpp's converter does not know a checkpoint, or fails to convert it."""

    exit_code = 40


class TimeLimitError(GgufspecError):
    """--max-time is too short for the model on this machine."""

    exit_code = 41


class ChartError(GgufspecError):
    """The program that draws charts cannot run here, or refuses a chart."""

    exit_code = 42
