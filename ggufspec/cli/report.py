"""``ggufspec report``: a bench as a page to look at and to pass on, or as pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import check_file, emit
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from ggufspec.results import ResultSet

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in the name of a file
_LONGEST = 100
_Folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completions.runs)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the page to this file, - for standard output.  [default: report.html]",
)
@click.option("--png", type=_Folder, help="Write the charts into this folder instead.")
@click.option("--svg", type=_Folder, help="Likewise, as SVG.")
def command(*, runs: tuple[str, ...], out: Path | None, png: Path | None, svg: Path | None) -> None:
    """Make a page of a past bench, to look at and to pass on: verdict, tables, charts, exact commands.

    One file that works offline. RUN is the id of a stored bench, the beginning of one, or its folder; the
    last one without it. Of several, the later ones are compared with the first.

    \b
    ggufspec report                          the last bench, into report.html
    ggufspec report b9102 today -o both.html   two benches, compared
    """
    from ggufspec.cli.steps import benches

    page = Path("report.html") if out is None and png is None and svg is None else out
    if page is not None and str(page) != "-":
        check_file(page)
    stored = [benches.load(run) for run in runs or ("last",)]
    if png is not None:
        _draw(stored, png, "png")
    if svg is not None:
        _draw(stored, svg, "svg")
    if page is not None:
        from ggufspec.report.html import html

        content = html(stored, benches.forecasts(stored[0].folder)).encode()
        emit(content, None if str(page) == "-" else page)
        _tell(page)


def _draw(stored: list[ResultSet], folder: Path, form: Literal["png", "svg"]) -> None:
    from ggufspec.cli.entry.output import following
    from ggufspec.cli.steps import benches
    from ggufspec.report import plot

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GgufspecError(f"cannot make {folder}: {error.strerror}", "choose another folder") from error
    prefixes = _prefixes([bench.meta.id for bench in stored]) if len(stored) > 1 else [""]
    charts = {
        folder / f"{prefix}{name}.{form}": drawn.chart
        for prefix, bench in zip(prefixes, stored, strict=True)
        for name, drawn in plot.drawn(bench, benches.forecasts(bench.folder)).items()
    }
    for file in following([*charts], lambda file: file.name):
        emit(plot.image(charts[file], form), file)
        _tell(file)


def _prefixes(ids: list[str]) -> list[str]:
    """Return how the files of each bench begin; an id may be a stranger's and must not become a path."""
    safe = [_UNSAFE.sub("_", each)[:_LONGEST].lstrip(".") for each in ids]
    return [f"{name}-" if safe.count(name) == 1 else f"{name}-{n}-" for n, name in enumerate(safe, start=1)]


def _tell(file: Path) -> None:
    if str(file) != "-":
        echo(f"written: {file}", err=True)
