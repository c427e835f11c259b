"""Writing to standard output, standard error and files, with errors of the system as our own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from ggufspec.choices import OutputFormat
from ggufspec.errors import GgufspecError
from ggufspec.harmless import harmless, to_json

if TYPE_CHECKING:  # `--help` starts faster without it
    from pathlib import Path

    from ggufspec.report import columns
    from ggufspec.results import Meta


@contextmanager
def written(out: Path | None = None) -> Iterator[None]:
    """Turn the system's errors from writing into our own.

    Args:
        out: the file that is being written; None for standard output.

    Raises:
        BrokenPipeError: the reader of standard output has ended, which is not an error.
        DiskFullError: the disk is full.
        GgufspecError: writing failed for another reason.
    """
    if out is not None:
        from ggufspec import userfiles  # `--help` starts faster without it

        with userfiles.writing(out):
            yield
        return
    if sys.stdout is None:
        raise GgufspecError("cannot write to standard output: it is closed", "write to a file with --out")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"cannot write to standard output: {error.strerror}"
        raise _make_error(error, message, "free disk space, or redirect the output elsewhere") from error


def flush() -> None:
    """Flush standard output.

    Raises:
        BrokenPipeError: its reader has ended.
        GgufspecError: writing failed; see ``written``.
    """
    if sys.stdout is not None:
        with written():
            sys.stdout.flush()


def convert_error(error: OSError) -> GgufspecError:
    """Return our error for an unexpected error of the system."""
    try:
        flush()
    except GgufspecError as problem:  # standard output is what failed
        return problem
    place = f": {error.filename}" if error.filename else ""
    return _make_error(error, f"{error.strerror or error}{place}", "--debug shows where")


def _make_error(error: OSError, message: str, hint: str) -> GgufspecError:
    from ggufspec import userfiles  # `--help` starts faster without it

    return userfiles.writing_error(error, message, hint)


def echo(message: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text without control characters.

    Args:
        message: what to print, converted with ``str``.
        err: print to standard error.
        nl: print a newline after it.
    """
    with nullcontext() if err else written():  # at once, where PYTHONUNBUFFERED is set
        click.echo(harmless(str(message)), err=err, nl=nl)


def echo_sentence(text: str) -> None:
    """Print a sentence on standard error, on a terminal in lines that fit its width."""
    from ggufspec.report.text import tables

    echo(tables.fit_terminal(text, sys.stderr), err=True)


def echo_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, err: bool = False) -> None:
    """Print a table: on a terminal one that fits its width, otherwise one line for each row.

    Args:
        headings: one for each column.
        rows: at least one; in each, one text for each column.
        err: print to standard error.
    """
    from ggufspec.report.text import tables

    stream = sys.stderr if err else sys.stdout
    is_shown = stream is not None and stream.isatty()
    echo(tables.grid(headings, rows, tables.TERMINAL if is_shown else tables.PLAIN), err=err)


def echo_rows(row: type[columns.Row], items: Sequence[Any], output: str, *names: str) -> None:
    """Print what rows are about: objects in JSON, or a table.

    Args:
        row: declares the columns.
        items: one for each row.
        output: ``json``, or another format for a table.
        names: the columns of the table; without any, all of them.
    """
    if output == "json":
        echo_json([row.to_json(item) for item in items])
        return
    shown = [row.columns[name] for name in names or row.fields()]
    echo_table([column.head for column in shown], [[column.text(item) for column in shown] for item in items])


def emit_page(
    page: Callable[[], str],
    rows: Callable[[Any], Any],
    output: str,
    out: Path | None,
    *,
    as_json: Callable[[], str] | None = None,
    meta: Meta | None = None,
    **about: Any,
) -> None:
    """Print or write a page for people, or its rows in another format.

    Args:
        page: makes the page.
        rows: makes the rows with ``report.frames``, which a page does not need.
        output: the format.
        out: the file; None for standard output.
        as_json: makes a text in JSON that has more than the rows; None where they are all.
        meta: of the bench from which the rows come.
        **about: what ``formats.render`` is told of the rows.
    """
    from ggufspec.report.text import formats, tables

    if output in tables.FOR_PEOPLE:
        emit(page(), out)
        return
    if output == "json" and as_json is not None:
        emit(as_json(), out)
        return
    from ggufspec.report import frames  # pandas is slow to import, and pages do not need it

    if meta is not None:
        about["origin"] = frames.origin(meta)
    emit(formats.render(rows(frames), output, **about), out)


def terminal_width() -> int | None:
    """Return the columns of the terminal on standard output; None where that is no terminal."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def echo_json(value: Any) -> None:
    """Print a value as indented JSON; control characters become escapes."""
    click.echo(to_json(value, indent=2))


def default_output(out: Path | None) -> str:
    """Return the format of a table without ``-o``: for the terminal, or Markdown where none shows it."""
    is_shown = out is None and sys.stdout is not None and sys.stdout.isatty()
    return (OutputFormat.TERMINAL if is_shown else OutputFormat.MARKDOWN).value


def check_output(output: str, out: Path | None) -> None:
    """Check that a table can be written, before anything is measured for it.

    Raises:
        GgufspecError: a library is missing, a terminal cannot show the format, or the file cannot be written.
    """
    if output == "parquet":
        from importlib.util import find_spec

        if not any(map(find_spec, ("pyarrow", "fastparquet"))):
            raise GgufspecError("-o parquet needs pyarrow, which is not installed", "pip install pyarrow")
        if out is None and sys.stdout.isatty():
            raise _not_for_a_terminal()
    if out is not None:
        from ggufspec import userfiles  # `--help` starts faster without it

        userfiles.check_writable(out)


def choose_columns(names: str, known: Sequence[str]) -> list[str]:
    """Return the columns that ``--columns`` names, in its order.

    Args:
        names: separated by commas, or ``all``.
        known: the columns of the table.

    Raises:
        click.UsageError: the table has no such column.
    """
    if names.strip() == "all":
        return list(known)
    chosen = [name.strip() for name in names.split(",")]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise click.UsageError(f"unknown column: {unknown[0]!r}; this table has {', '.join(known)}")
    return chosen


def _not_for_a_terminal() -> GgufspecError:
    return GgufspecError("this format cannot be printed on a terminal", "name a file with --out")


def emit(table: str | bytes, out: Path | None) -> None:
    """Print a table without control characters, or write it to a file as it is."""
    if out is None and isinstance(table, bytes) and sys.stdout.isatty():
        raise _not_for_a_terminal()
    with written(out):
        if out is None:
            echo(table, nl=False) if isinstance(table, str) else click.echo(table, nl=False)
        else:
            out.write_bytes(table.encode() if isinstance(table, str) else table)
