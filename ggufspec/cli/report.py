"""``ggufspec report``: write an HTML report or charts of a bench."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import check_file, emit, strict_option
from ggufspec.cli.options.tuned import tuned_option
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from ggufspec.results import ResultSet

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in a file name
_LONGEST_ID = 100  # characters
_Folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completions.runs)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File for the report; - for standard output.  [default: report.html]",
)
@tuned_option("Report the bench that confirmed this tuning, before any RUN.", decides=False)
@click.option("--png", type=_Folder, help="Write the charts into this folder as PNG, instead of a report.")
@click.option("--svg", type=_Folder, help="Write the charts into this folder as SVG, instead of a report.")
@strict_option
def command(
    *,
    runs: tuple[str, ...],
    tuned: str | None,
    out: Path | None,
    png: Path | None,
    svg: Path | None,
    strict: bool,
) -> None:
    """Write an HTML report of a bench: verdict, tables, charts and exact commands.

    The report is one file that works offline. RUN is the id of a stored bench, the beginning of one, or its
    folder. [default: the last bench] With several, the later ones are compared with the first.

    \b
    ggufspec report                          write report.html for the last bench
    ggufspec report b9102 today -o both.html   compare two benches
    """
    from ggufspec.cli.steps import benches

    page = Path("report.html") if out is None and png is None and svg is None else out
    if page is not None and str(page) != "-":
        check_file(page)
    if tuned is not None:
        runs = (benches.find_tuned(tuned), *runs)
    stored = [benches.load_bench(run) for run in runs or ("last",)]
    if png is not None:
        _write_charts(stored, png, "png")
    if svg is not None:
        _write_charts(stored, svg, "svg")
    if page is not None:
        from ggufspec.report.html import sections

        configurations = [benches.load_configuration(bench.folder) for bench in stored]
        forecasts = benches.load_forecasts(stored[0].folder)
        content = sections.html(stored, forecasts, configurations).encode()
        emit(content, None if str(page) == "-" else page)
        _print_path(page)
    if strict:
        benches.refuse_doubtful(stored)


def _write_charts(stored: list[ResultSet], folder: Path, form: Literal["png", "svg"]) -> None:
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.cli.steps import benches
    from ggufspec.report import plot

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GgufspecError(f"cannot create {folder}: {error.strerror}", "choose another folder") from error
    prefixes = _prefixes([bench.meta.id for bench in stored]) if len(stored) > 1 else [""]
    charts = {
        folder / f"{prefix}{name}.{form}": drawn.chart
        for prefix, bench in zip(prefixes, stored, strict=True)
        for name, drawn in plot.drawn(bench, benches.load_forecasts(bench.folder)).items()
    }
    for file in iterate_with_progress([*charts], lambda file: file.name):
        emit(plot.image(charts[file], form), file)
        _print_path(file)


def _prefixes(ids: list[str]) -> list[str]:
    """Return a file name prefix for each bench; an id may come from others and must not become a path."""
    safe = [_UNSAFE.sub("_", bench_id)[:_LONGEST_ID].lstrip(".") for bench_id in ids]
    return [f"{name}-" if safe.count(name) == 1 else f"{name}-{n}-" for n, name in enumerate(safe, start=1)]


def _print_path(file: Path) -> None:
    if str(file) != "-":
        echo(f"written: {file}", err=True)
