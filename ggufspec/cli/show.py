"""``ggufspec show``: the table of a past bench again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli import _completing
from ggufspec.cli._echo import echo
from ggufspec.cli._options import emit, output_options

if TYPE_CHECKING:
    from pandas import DataFrame

_TABLES = {name: f"{name}s" for name in ("prompt", "run", "position", "round")} | {"category": "categories"}
ROWS = ("arm", *_TABLES)


@click.command()
@click.argument("run", default="last", shell_complete=_completing.runs)
@click.option(
    "--per",
    type=click.Choice(ROWS),
    default="arm",
    show_default=True,
    help="What has a row: an arm, a category or prompt of it, a run, a draft position, a round.",
)
@click.option("--runs", "per", flag_value="run", help="The same as --per run.")
@click.option(
    "--columns", metavar="NAMES", help="Only these columns, for example prompt,draft_n_max,n_accepted,gen_s."
)
@click.option("--plot", is_flag=True, help="Draw tokens/s over γ as text.")
@click.option("--list", "list_runs", is_flag=True, help="List the stored benches, oldest first.")
@output_options
def command(
    *, run: str, per: str, columns: str | None, plot: bool, list_runs: bool, output: str, out: Path | None
) -> None:
    """Print the table of a past bench again.

    RUN is the id of a stored bench, the beginning of one, or its folder; the last one without it.

    \b
    ggufspec show                         the last bench
    ggufspec show 20260102 --runs -o csv  every single run of another
    ggufspec show --runs --columns prompt,draft_n_max,n_accepted,gen_tokens,gen_s
    """
    from ggufspec import frames, report, results
    from ggufspec.report import terminal
    from ggufspec.report.lacking import why_empty
    from ggufspec.report.overview import overview
    from ggufspec.report.wording import engine

    if list_runs:
        emit("".join(f"{name}\n" for name in results.ids()), out)
        return
    stored = results.load(run)
    if plot:
        emit(terminal.curve(stored) or "Nothing drafted, so there is no curve.\n", out)
        return
    empty = why_empty(stored, per)
    if empty is not None:
        echo(empty, err=True)
        if output == "md":
            return
    if per == "arm" and output == "md" and columns is None:
        emit(overview(stored), out)
        return
    title = "summary" if per == "arm" else _TABLES[per]
    table = getattr(frames, title)(stored)
    text = report.render(table if columns is None else _chosen(table, columns), output, title=title)
    emit(f"{engine(stored.meta.engine)}\n\n{text}" if isinstance(text, str) and output == "md" else text, out)


def _chosen(table: DataFrame, columns: str) -> DataFrame:
    wanted = [name.strip() for name in columns.split(",")]
    unknown = [name for name in wanted if name not in table.columns]
    if unknown:
        known = ", ".join(table.columns)
        raise click.UsageError(f"there is no column {unknown[0]!r} here; there are {known}")
    return table[wanted]
