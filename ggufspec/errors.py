"""Every error that a user can meet, each a class with its own exit code; an error has a message and a hint.

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

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        if exit_code is not None:  # a kind of another error exits as that one does
            cls.exit_code = exit_code

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(f"hint: {hint}")


class NoInstallError(GgufspecError, exit_code=3):
    """No usable llama.cpp was found."""


class BuildError(GgufspecError, exit_code=4):
    """llama.cpp did not compile, or the build does not work."""


class SourceError(GgufspecError, exit_code=5):
    """llama.cpp's source could not be fetched, verified or unpacked."""


class ModelFileError(GgufspecError, exit_code=6):
    """A model file is missing, truncated or not a GGUF."""


class DrafterRefusedError(GgufspecError, exit_code=7):
    """llama.cpp refuses this drafter for this target."""


class ContextTooSmallError(GgufspecError, exit_code=8):
    """The prompt, answer and draft do not fit into the context."""


class ChildCrashedError(GgufspecError, exit_code=9):
    """A llama.cpp program was killed by a signal or exited with a failure."""


class ChildTimedOutError(GgufspecError, exit_code=10):
    """A llama.cpp program exceeded its time limit."""


class OutOfMemoryError(GgufspecError, exit_code=11):
    """Memory ran out, on the host or on a GPU."""


class DiskFullError(GgufspecError, exit_code=12):
    """The disk is full."""


class ResultsError(GgufspecError, exit_code=13):
    """Stored results are missing, unreadable or not comparable."""


class LogError(GgufspecError, exit_code=14):
    """A log contains no output of llama.cpp or no figures, or cannot be read."""


class SummaryLostError(GgufspecError, exit_code=15):
    """A program succeeded, but the end of its log is missing."""


class DraftingInactiveError(GgufspecError, exit_code=16):
    """Nothing was drafted in a drafting run."""


class UnsupportedMethodError(GgufspecError, exit_code=17):
    """ggufspec does not support the pair's drafting method yet."""


class ImplausibleError(GgufspecError, exit_code=18):
    """The figures of a run cannot be true, or tokens were counted and no text came."""


class RepositoryNotFoundError(GgufspecError, exit_code=20):
    """The repository does not exist on the Hub, or is private."""


class RevisionNotFoundError(GgufspecError, exit_code=21):
    """The branch, tag or commit does not exist."""


class RemoteFileNotFoundError(GgufspecError, exit_code=22):
    """The file or quant does not exist, or the name is ambiguous."""


class GatedRepositoryError(GgufspecError, exit_code=23):
    """The repository is gated, and access has not been granted."""


class BadTokenError(GgufspecError, exit_code=24):
    """The Hub rejected the access token."""


class NetworkError(GgufspecError, exit_code=25):
    """The Hub or a server cannot be reached, or stopped answering."""


class RateLimitedError(GgufspecError, exit_code=26):
    """The Hub limits requests for longer than ggufspec waits."""


class HubServerError(GgufspecError, exit_code=27):
    """The Hub repeatedly answered with server errors."""


class CorruptDownloadError(GgufspecError, exit_code=28):
    """A downloaded file differs from what the Hub lists."""


class NotCachedError(GgufspecError, exit_code=29):
    """The file is not in the cache, and the network may not be used."""


class BadReferenceError(GgufspecError, exit_code=30):
    """A text is not a model reference."""


class CatalogError(GgufspecError, exit_code=31):
    """The pair does not exist, or a catalogue cannot be read."""


class ConsentNeededError(GgufspecError, exit_code=32):
    """A large download, a deletion or an upload needs confirmation."""


class SlowerError(GgufspecError, exit_code=33):
    """A bench is slower than the limit allows."""


class InconclusiveError(GgufspecError, exit_code=34):
    """The runs that were measured are too few, or too different, for a verdict."""


class DoubtfulError(GgufspecError, exit_code=35):
    """A verdict is in doubt or undecided, and --strict was given."""


class VerificationError(GgufspecError, exit_code=36):
    """A bundle's figures do not follow from its raw logs, or a file does not match its hash."""


class ChangedFileError(GgufspecError, exit_code=37):
    """A file on the Hub is not the one that the catalogue or an earlier fetch pinned."""


class WorkerError(GgufspecError, exit_code=38):
    """A worker that lends its devices over the network cannot be used, or was lost."""


class ConverterError(GgufspecError, exit_code=39):
    """The Python environment of llama.cpp's converter cannot be made, or the converter fails its test."""


class ConversionError(GgufspecError, exit_code=40):
    """llama.cpp's converter does not know a checkpoint, or fails to convert it."""


class TimeLimitError(GgufspecError, exit_code=41):
    """--max-time is too short for the model on this machine."""


class ChartError(GgufspecError, exit_code=42):
    """The program that draws charts cannot run here, or refuses a chart."""


class BrokenDrafterError(GgufspecError, exit_code=43):
    """A drafter's file, or the llama.cpp that runs it, is broken."""


class NothingToReportError(GgufspecError, exit_code=44):
    """A bench has no finding about llama.cpp, or the finding does not show any more."""
