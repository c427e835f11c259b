"""Options that commands share, and the texts that become values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ggufspec.errors import GgufspecError

FORMATS = ("md", "csv", "json", "jsonl", "sql")
MAX_DRAFT = 64

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


class DraftSizes(click.ParamType[tuple[int, ...]]):
    """Draft sizes: numbers and ranges like ``3``, ``3,5,8`` or ``1-8``."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the sizes in ascending order, each once."""
        sizes: set[int] = set()
        for part in str(value).split(","):
            first, dash, last = part.strip().partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                self.fail(
                    f"{value!r} is no list of draft sizes; give for example 3 or 3,5,8 or 1-8", param, ctx
                )
            if int(first) < 1 or int(last or first) > MAX_DRAFT or int(last or first) < int(first):
                self.fail(
                    f"draft sizes go from 1 to {MAX_DRAFT}, lower ones first, not {value!r}", param, ctx
                )
            sizes.update(range(int(first), int(last or first) + 1))
        return tuple(sorted(sizes))


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


def emit(text: str, out: Path | None) -> None:
    """Print a table, or write it to a file."""
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GgufspecError(f"cannot write {out}: {error.strerror}", "choose another --out") from error
