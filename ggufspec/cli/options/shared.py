"""Options that commands share, types that parse their values, and the step from options to a dataclass."""

from __future__ import annotations

import functools
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

import click

from ggufspec.cli.entry.output import echo, written
from ggufspec.errors import GgufspecError
from ggufspec.report.text import formats, tables
from ggufspec.units import parse_duration, parse_memory

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
if TYPE_CHECKING:
    from _typeshed import DataclassInstance

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

_MOST = 2**31 - 1  # the largest integer that llama.cpp accepts
_MOST_LAYERS = 9999
_LEAST_FRACTION = 0.0001

_SMALLEST, _LARGEST = 1e-9, 1e12  # besides 0; others overflow in computations
_LONGEST_S = 20 * 86400  # within the limits of all waiting functions


class Number(click.FloatRange):
    """A finite number within bounds; click's own type accepts NaN, whatever the bounds are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number and not _SMALLEST <= abs(number) <= _LARGEST:
            self.fail(f"{value!r} is neither 0 nor between {_SMALLEST:g} and {_LARGEST:g}", param, ctx)
        return number


class Count(click.IntRange):
    """A whole number, up to the largest that llama.cpp accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number > _MOST:
            self.fail(f"{value} is more than {_MOST:,}", param, ctx)
        return number


class LayersParam(click.ParamType[int | str]):
    """A number of layers, ``all`` or ``auto``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word itself."""
        text = str(value)
        if text in {"all", "auto"}:
            return text
        if not _is_count(text, _MOST_LAYERS):
            self.fail(f"{text!r} is not a number of layers; examples: 45, all, auto", param, ctx)
        return int(text)


class Fraction(click.ParamType[float]):
    """A percentage or fraction such as ``2%`` or ``0.02``."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the fraction."""
        text = str(value).strip()
        try:
            fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            fraction = 0.0
        if not _LEAST_FRACTION <= fraction < 1:
            self.fail(f"{text!r} is not a percentage between 0.01% and 100%; examples: 2%, 0.02", param, ctx)
        return fraction


class Duration(click.ParamType[float]):
    """A time such as ``10m``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            seconds = value if isinstance(value, float) else parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 1 <= seconds <= _LONGEST_S:
            self.fail(f"{value!r} is not between 1 second and {_LONGEST_S // 3600} hours", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """An amount of memory such as ``24G``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        try:
            return parse_memory(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Sizes(click.ParamType[tuple[int, ...]]):
    """An amount of memory, or one for each GPU: ``24G``, ``24G,12G``."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the bytes of each."""
        try:
            return value if isinstance(value, tuple) else tuple(map(parse_memory, str(value).split(",")))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Experts(click.ParamType[int | str]):
    """A number of layers, or ``all``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word itself."""
        text = str(value)
        if text != "all" and not _is_count(text, _MOST_LAYERS):
            self.fail(f"{text!r} is not a number of layers; examples: 12, all", param, ctx)
        return text if text == "all" else int(text)


class LazyChoice(click.ParamType[str]):
    """One of several names; they are read from their source only when needed, as that is slow to import.

    Args:
        name: what is chosen; the option's placeholder in the help.
        load: returns the names.
    """

    def __init__(self, name: str, load: Callable[[], Sequence[str]]) -> None:
        self.name = name
        self._load = load

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name if it is one of them."""
        return click.Choice(self._load()).convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names."""
        return click.Choice(self._load()).shell_complete(ctx, param, incomplete)


def add_options(*options: Decorator) -> Decorator:
    """Return a decorator that adds options in their order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def suite_names() -> list[str]:
    """Return the names of the built-in prompt suites."""
    from ggufspec import prompts

    return sorted(prompts.BUILT_IN)


class SuiteName(LazyChoice):
    """A built-in prompt suite, or a dataset on the Hub."""

    def __init__(self) -> None:
        super().__init__("name", suite_names)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name of a built-in suite, or one that begins as those of datasets do."""
        from ggufspec import prompts

        if isinstance(value, str) and value.startswith(prompts.ON_HUB):
            return value
        return super().convert(value, param, ctx)


class File(click.Path):
    """An existing file; the error for a missing one suggests a similar name."""

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


def _is_count(text: str, most: int) -> bool:
    """Return whether a text is a whole number from 0 to ``most``; a longer one is not parsed."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most


text_or_json = click.option(
    "-o",
    "--output",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)
"""``-o`` of commands whose answer is not a table."""


strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Exit with code 35 instead of 0 if a warning puts a verdict in doubt, or a tuning is undecided.",
)
"""``--strict`` of commands that print verdicts."""


def output_options(command: Command) -> Command:
    """Add ``-o`` and ``--out``: a table's format and file; both are checked before the command runs."""

    @functools.wraps(command)
    def check_and_run(*, output: str | None, out: Path | None, **values: Any) -> None:
        output = output or default_output(out)
        check_output(output, out)
        command(output=output, out=out, **values)

    path = click.Path(dir_okay=False, path_type=Path)
    file_option = click.option("--out", type=path, help="Write the table to this file.")
    format_option = click.option(
        "-o",
        "--output",
        type=click.Choice(list(formats.FORMATS)),
        help="Format: a table that fits the terminal, Markdown, or a format for programs. "
        "[default: table on a terminal, otherwise md]",
    )
    return format_option(file_option(check_and_run))


def default_output(out: Path | None) -> str:
    """Return the format of a table without ``-o``: for the terminal, or Markdown where none shows it."""
    is_shown = out is None and sys.stdout is not None and sys.stdout.isatty()
    return tables.TERMINAL if is_shown else "md"


def check_output(output: str, out: Path | None) -> None:
    """Check that a table can be written, before anything is measured for it.

    Raises:
        GgufspecError: a library is missing, a terminal cannot show the format, or the file cannot be written.
    """
    if output == "parquet":
        if not any(map(find_spec, ("pyarrow", "fastparquet"))):
            raise GgufspecError("-o parquet needs pyarrow, which is not installed", "pip install pyarrow")
        if out is None and sys.stdout.isatty():
            raise _not_for_a_terminal()
    if out is not None:
        check_file(out)


def check_file(file: Path) -> None:
    """Check that a file can be written.

    Raises:
        GgufspecError: its folder does not exist, or the file or folder is not writable.
    """
    folder = file.parent
    try:
        if not folder.is_dir():
            raise GgufspecError(
                f"cannot write {file}: there is no folder {folder}",
                f"create it (mkdir -p {shlex.quote(str(folder))}), or choose another file",
            )
        is_new = not file.exists()
        if is_new or file.is_file():  # opening a pipe would end whoever reads from it
            file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise GgufspecError(f"cannot write {file}: {error.strerror}", "choose another file") from error


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


Options = TypeVar("Options", bound="DataclassInstance")


def build_options(options_class: type[Options], values: Mapping[str, Any]) -> Options:
    """Return the options of a command as one value.

    Args:
        options_class: a dataclass whose fields are named as the options.
        values: option name -> value; other options may be among them.
    """
    from dataclasses import fields

    return options_class(**{field.name: values[field.name] for field in fields(options_class) if field.init})


def pass_options(command: Callable[Concatenate[Options, ...], None]) -> Callable[..., None]:
    """Pass the options that a dataclass names as one value, before the other options.

    The dataclass is the type of the command's first parameter, by its name in ``values``. It is imported when
    the command runs: defining it takes longer than all else that ``--help`` needs.
    """
    class_name = next(iter(command.__annotations__.values()))

    @functools.wraps(command)
    def call(**arguments: Any) -> None:
        from ggufspec.cli.options import values

        options = build_options(getattr(values, class_name), arguments)
        others = {name: value for name, value in arguments.items() if not hasattr(options, name)}
        command(options, **others)

    return call


def _backends() -> list[str]:
    from ggufspec.llama.install import Backend

    return ["auto", *(backend.value for backend in Backend)]


def backend_option(command: Command) -> Command:
    """Add --backend, the compute backend to build."""
    return click.option(
        "--backend",
        type=LazyChoice("backend", _backends),
        default="auto",
        show_default=True,
        help="Compute backend to build: cpu, cuda, metal, vulkan, hip or auto.",
    )(command)
