"""``ggufspec report``: write an HTML report or charts of a bench."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import emit
from ggufspec.errors import GgufspecError
from ggufspec.options import ReportOptions

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.results import ResultSet

_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in a file name
_LONGEST_ID = 100  # characters
_FORMATS = ("html", "png", "svg")


@command_of(ReportOptions)
def command(asked: ReportOptions) -> None:
    """Write an HTML report of a bench: verdict, tables, charts and exact commands.

    The report is one file that works offline. BENCH is the id of a stored bench, the beginning of one, or its
    folder. [default: the last bench] With several, the later ones are compared with the first.

    \b
    ggufspec report                          write report.html for the last bench
    ggufspec report b9102 today --out both.html   compare two benches
    ggufspec report -o svg --out charts      write the charts into the folder charts
    """
    from pathlib import Path

    from ggufspec import userfiles
    from ggufspec.cli.steps import benches

    runs = asked.runs

    page = (asked.out or Path("report.html")) if asked.output == "html" else None
    if page is not None and str(page) != "-":
        if page.is_dir():
            raise click.UsageError(f"--out {page} is a folder; the report is a file")
        userfiles.check_writable(page)
    if asked.tuned is not None:
        runs = (benches.find_tuned(asked.tuned), *runs)
    stored = [benches.load_bench(run) for run in runs or ("last",)]
    if page is None:
        _write_charts(stored, asked.out or Path("charts"), asked.output)
    else:
        from ggufspec.report.html import sections

        configurations = [benches.load_configuration(bench.folder) for bench in stored]
        forecasts = benches.load_forecasts(stored[0].folder)
        content = sections.html(stored, forecasts, configurations).encode()
        emit(content, None if str(page) == "-" else page)
        _print_path(page)
    if asked.strict:
        benches.refuse_doubtful(stored)


def _write_charts(stored: list[ResultSet], folder: Path, form: str) -> None:
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.cli.steps import benches
    from ggufspec.report import plot

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GgufspecError(f"cannot create {folder}: {error.strerror}", "choose another folder") from error
    prefixes = _prefixes([bench.meta.id for bench in stored]) if len(stored) > 1 else [""]
    undrawn: dict[str, str] = {}
    prefixed = [*zip(prefixes, stored, strict=True)]
    for prefix, bench in iterate_with_progress(prefixed, lambda pair: pair[1].meta.id):
        drawn = plot.drawn(bench, benches.load_forecasts(bench.folder))
        charts = {f"{prefix}{name}.{form}": chart for name, (chart, _) in drawn.items()}
        pictures = plot.draw_pictures(charts, "png" if form == "png" else "svg")
        for name, content in pictures.drawn.items():
            emit(content, folder / name)
            _print_path(folder / name)
        undrawn |= pictures.failures
    plot.Pictures(drawn={}, failures=undrawn).check()


def _prefixes(ids: list[str]) -> list[str]:
    """Return a file name prefix for each bench; an id may come from others and must not become a path."""
    safe = [_UNSAFE.sub("_", bench_id)[:_LONGEST_ID].lstrip(".") for bench_id in ids]
    return [f"{name}-" if safe.count(name) == 1 else f"{name}-{n}-" for n, name in enumerate(safe, start=1)]


def _print_path(file: Path) -> None:
    if str(file) != "-":
        echo(f"written: {file}", err=True)
