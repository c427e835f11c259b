"""Writing tables: their format, which is chosen and checked before a command runs, and their file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggufspec.choices import OutputFormat
from ggufspec.cli.entry.output import echo, written
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from pathlib import Path


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
