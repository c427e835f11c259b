"""Options that commands share, and the texts that become values."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggufspec.errors import DiskFullError, GgufspecError
from ggufspec.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FORMATS = ("md", "csv", "json", "jsonl", "sql", "parquet")
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

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


class Size(click.ParamType[int]):
    """An amount of memory such as ``24G``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        try:
            return value if isinstance(value, int) else parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Suite(click.ParamType[str]):
    """The name of a built-in prompt suite; their list is read only when it is needed."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name if there is such a suite."""
        return _suites().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        return _suites().shell_complete(ctx, param, incomplete)


class File(click.Path):
    """A file that is there; for one that is not, the name that was probably meant."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(exists=True, dir_okay=False, allow_dash=allow_dash, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from ggufspec import paths

            path = Path(str(value))
            close = None if path.exists() else paths.beside(path)
            if close is None:
                raise
            self.fail(f"{error.message} Did you mean {str(close)!r}?", param, ctx)


def _suites() -> click.Choice[str]:
    from ggufspec import prompts

    return click.Choice(sorted(prompts.BUILT_IN))


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
