"""Options that commands share, and the texts that become values."""

from __future__ import annotations

import functools
import math
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ggufspec.cli.entry.output import echo, written
from ggufspec.errors import GgufspecError
from ggufspec.report.text import formats, tables
from ggufspec.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")

_MOST = 2**31 - 1  # the largest whole number that llama.cpp takes
_MOST_LAYERS = 9999
_LEAST_SHARE = 0.0001

SPLIT_MODES = ("none", "layer", "row", "tensor")

Command = Callable[..., None]

_SMALLEST, _LARGEST = 1e-9, 1e12  # beside 0: what is further away overflows where it is computed with
_LONGEST_S = 20 * 86400  # what every way to wait understands


class Number(click.FloatRange):
    """A finite number within bounds; click's own type accepts NaN, whatever the bounds are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        if number and not _SMALLEST <= abs(number) <= _LARGEST:
            self.fail(f"{value!r} is not 0, nor between {_SMALLEST:g} and {_LARGEST:g}", param, ctx)
        return number


class Count(click.IntRange):
    """A whole number, up to the largest one that llama.cpp takes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number > _MOST:
            self.fail(f"{value} is more than {_MOST:,}", param, ctx)
        return number


class Layers(click.ParamType[int | str]):
    """A number of layers, ``all`` or ``auto``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word itself."""
        text = str(value)
        if text in {"all", "auto"}:
            return text
        if not _is_count(text, _MOST_LAYERS):
            self.fail(f"{text!r} is not a number of layers; give for example 45, all or auto", param, ctx)
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
        if not _LEAST_SHARE <= share < 1:
            example = "give for example 2% or 0.02"
            self.fail(f"{text!r} is not a percentage between 0.01% and 100%; {example}", param, ctx)
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
        if not 1 <= seconds <= _LONGEST_S:
            self.fail(f"{value!r} is not between 1 second and {_LONGEST_S // 3600} hours", param, ctx)
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


class Devices(click.ParamType[tuple[str, ...]]):
    """Devices as ``llama-server --list-devices`` names them: ``CUDA0,CUDA1``, or ``none``."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the names."""
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in str(value).split(","))
        if not all(names) or len(set(names)) < len(names) or ("none" in names and len(names) > 1):
            self.fail(f"{value!r} are not devices; give for example CUDA0, CUDA0,CUDA1 or none", param, ctx)
        return names


class Proportions(click.ParamType[tuple[float, ...]]):
    """Shares of devices such as ``3,1``."""

    name = "shares"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the numbers."""
        try:
            shares = value if isinstance(value, tuple) else tuple(map(float, str(value).split(",")))
        except ValueError:
            shares = ()
        if not shares or not all(0 <= share < 1e9 for share in shares) or not any(shares):
            self.fail(f"{value!r} are not shares; give for example 3,1", param, ctx)
        return shares


class Experts(click.ParamType[int | str]):
    """A number of layers, or ``all``."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word itself."""
        text = str(value)
        if text != "all" and not _is_count(text, _MOST_LAYERS):
            self.fail(f"{text!r} is not a number of layers; give for example 12 or all", param, ctx)
        return text if text == "all" else int(text)


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


def _is_count(text: str, most: int) -> bool:
    """Whether a text is a whole number from 0 to ``most``; longer ones are not even read."""
    return text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most


def _suites() -> click.Choice[str]:
    from ggufspec import prompts

    return click.Choice(sorted(prompts.BUILT_IN))


def _experts(all_of: str, some_of: str, whose: str) -> tuple[Callable[[Command], Command], ...]:
    """Return llama.cpp's two options for the experts of a mixture, which say the same thing here."""
    name = f"{whose}cpu_moe"
    return (
        click.option(
            *all_of.split(),
            name,
            flag_value="all",
            type=Experts(),
            help=f"Keep all experts of the {'drafter' if whose else 'target'} on the processor.",
        ),
        click.option(*some_of.split(), name, type=Experts(), help="Keep those of the first N layers there."),
    )


PLACING: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "-fit",
        "--fit",
        "fitting",
        type=click.Choice(("on", "off")),
        help="Whether llama.cpp may offload less than asked, so that it fits.",
    ),
    click.option("-dev", "--device", "devices", type=Devices(), help="GPUs to use: CUDA0,CUDA1 or none."),
    click.option(
        "-devd",
        "--device-draft",
        "draft_devices",
        type=Devices(),
        help="The same for the drafter, else the target's.",
    ),
    click.option("-ts", "--tensor-split", type=Proportions(), help="Shares of the GPUs: 3,1."),
    click.option("-sm", "--split-mode", type=click.Choice(SPLIT_MODES), help="How to spread over GPUs."),
    click.option(
        "-mg",
        "--main-gpu",
        type=Count(0),
        help="The one GPU of --split-mode none, row.",
    ),
    *_experts("-cmoe --cpu-moe", "-ncmoe --n-cpu-moe", ""),
    *_experts("-cmoed --cpu-moe-draft", "-ncmoed --n-cpu-moe-draft", "draft_"),
)
"""Where models go, beside --ngl and --ngld; what is given becomes one Offload, see ``placed``."""
_PLACES = ("devices", "draft_devices", "tensor_split", "main_gpu", "cpu_moe", "draft_cpu_moe")


def placing_options(command: Command) -> Command:
    """Add the options of PLACING."""
    for option in reversed(PLACING):
        command = option(command)
    return command


def placed(given: dict[str, Any]) -> dict[str, Any]:
    """Return options as they were given, those of PLACING as one ``offload``."""
    from ggufspec.domain import Offload, SplitMode

    found = {name: given[name] for name in _PLACES if name in given}
    if "fitting" in given:
        found["fit"] = given["fitting"] == "on"
    if "split_mode" in given:
        found["split_mode"] = SplitMode(given["split_mode"])
    rest = {name: value for name, value in given.items() if name not in {*_PLACES, "fitting", "split_mode"}}
    return {**rest, "offload": Offload(**found)} if found else rest


def output_options(command: Command) -> Command:
    """Add ``-o`` and ``--out``: what a table looks like, and where it goes; both are checked first."""

    @functools.wraps(command)
    def checked(*, output: str | None, out: Path | None, **others: Any) -> None:
        output = output or default_output(out)
        check_output(output, out)
        command(output=output, out=out, **others)

    path = click.Path(dir_okay=False, path_type=Path)
    to_file = click.option("--out", type=path, help="Write the table to this file.")
    in_form = click.option(
        "-o",
        "--output",
        type=click.Choice(list(formats.FORMATS)),
        help="Format: a table that fits the terminal, Markdown, or a format for programs. "
        "[default: table on a terminal, else md]",
    )
    return in_form(to_file(checked))


def default_output(out: Path | None) -> str:
    """Return the format of a table without ``-o``: for the terminal, or Markdown where none shows it."""
    is_shown = out is None and sys.stdout is not None and sys.stdout.isatty()
    return tables.TERMINAL if is_shown else "md"


def check_output(output: str, out: Path | None) -> None:
    """Refuse a table that could not be written, before anything is measured for it.

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
    """Refuse a file that cannot be written, as far as that is known before.

    Raises:
        GgufspecError: its folder is not there, or it or its folder may not be written to.
    """
    folder = file.parent
    try:
        if not folder.is_dir():
            raise GgufspecError(
                f"cannot write {file}: there is no folder {folder}",
                f"make it first (mkdir -p {shlex.quote(str(folder))}), or choose another file",
            )
        is_new = not file.exists()
        if is_new or file.is_file():  # opening a pipe would end whoever reads from it
            file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise GgufspecError(f"cannot write {file}: {error.strerror}", "choose another file") from error


def _not_for_a_terminal() -> GgufspecError:
    return GgufspecError("this format is not for a terminal", "name a file with --out")


def emit(table: str | bytes, out: Path | None) -> None:
    """Print a table without control characters, or write it to a file as it is."""
    if out is None and isinstance(table, bytes) and sys.stdout.isatty():
        raise _not_for_a_terminal()
    with written(out):
        if out is None:
            echo(table, nl=False) if isinstance(table, str) else click.echo(table, nl=False)
        else:
            out.write_bytes(table.encode() if isinstance(table, str) else table)
