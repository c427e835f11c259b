"""Standard output and files that may not take what is written to them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ggufspec.errors import DiskFullError, GgufspecError
from ggufspec.harmless import harmless, one_line, to_json

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


def echo(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text without control characters.

    Args:
        message: what to print; anything but a text is printed as ``str`` shows it.
        err: print to standard error.
        nl: end the line.
    """
    click.echo(harmless(str(message)), err=err, nl=nl)


def echo_json(value: Any) -> None:
    """Print a value as JSON, indented; its control characters become escapes."""
    click.echo(to_json(value, indent=2))


Item = TypeVar("Item")


def following(items: Sequence[Item], about: Callable[[Item], str]) -> Iterator[Item]:
    """Yield items under a bar with the time left; what is printed meanwhile may go to standard error alone.

    Args:
        items: what is gone through.
        about: what is said while an item is worked on.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(items))
        for item in items:
            bar.update(task, description=escape(one_line(about(item))))
            yield item
            bar.advance(task)
