"""Standard output and files that may not take what is written to them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ggufspec.errors import DiskFullError, GgufspecError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def written(out: Path | None = None) -> Iterator[None]:
    """Turn the system's refusal to write into an error.

    Args:
        out: the file that is written; None for standard output.

    Raises:
        BrokenPipeError: the reader of standard output is gone, which is not an error.
        DiskFullError: there is no room.
        GgufspecError: it cannot be written for another reason.
    """
    if out is None and sys.stdout is None:
        raise GgufspecError("cannot write to standard output: it is closed", "write to a file with --out")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where, hint = (
            ("to standard output", "make room, or send it to another place")
            if out is None
            else (out, "choose another --out")
        )
        raise _error(error, f"cannot write {where}: {error.strerror}", hint) from error


def flush() -> None:
    """Write out what standard output still holds back.

    Raises:
        BrokenPipeError: its reader is gone.
        GgufspecError: it cannot be written; see ``written``.
    """
    if sys.stdout is not None:
        with written():
            sys.stdout.flush()


def of_system(error: OSError) -> GgufspecError:
    """Return the error for what the system refused a command that did not expect it."""
    try:
        flush()
    except GgufspecError as problem:  # so it was this that could not be written
        return problem
    place = f": {error.filename}" if error.filename else ""
    return _error(error, f"{error.strerror or error}{place}", "the same command with --debug shows where")


def _error(error: OSError, message: str, hint: str) -> GgufspecError:
    return (DiskFullError if error.errno in _FULL else GgufspecError)(message, hint)
