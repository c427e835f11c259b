"""Options that commands share, and the texts that become values."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ggufspec.errors import DiskFullError, GgufspecError
from ggufspec.units import parse_duration

FORMATS = ("md", "csv", "json", "jsonl", "sql", "parquet")

Command = Callable[..., None]


class Layers(click.ParamType[int | str]):
    """A number of layers, ``all`` or ``auto``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word itself."""
        text = str(value)
        if text in {"all", "auto"}:
            return text
        if not text.isdecimal():
            self.fail(f"{text!r} is no number of layers; give for example 45, all or auto", param, ctx)
        return int(text)


class Fraction(click.ParamType[float]):
    """A share such as ``2%`` or ``0.02``."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the share as a fraction."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            self.fail(f"{text!r} is no share; give for example 2% or 0.02", param, ctx)
        return share


class Duration(click.ParamType[float]):
    """A time such as ``10m``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            seconds = value if isinstance(value, float) else parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds < 1:
            self.fail(f"{value!r} is less than a second", param, ctx)
        return seconds


def output_options(command: Command) -> Command:
    """Add ``-o`` and ``--out``: what a table looks like, and where it goes."""
    command = click.option(
        "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the table to this file."
    )(command)
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        default="md",
        show_default=True,
        help="The table's format.",
    )(command)


def emit(table: str | bytes, out: Path | None) -> None:
    """Print a table, or write it to a file."""
    if out is None and isinstance(table, bytes) and sys.stdout.isatty():
        raise GgufspecError("this format is not for a terminal", "name a file with --out")
    try:
        if out is None:
            click.echo(table, nl=False)
        else:
            out.write_bytes(table.encode() if isinstance(table, str) else table)
    except BrokenPipeError:
        raise  # whoever read it has seen enough; click ends without a word
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise (DiskFullError if full else GgufspecError)(
            f"cannot write {out or 'to standard output'}: {error.strerror}", "choose another --out"
        ) from error
