"""``ggufspec show``: the table of a past bench again."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli._options import emit, output_options

_TABLES = {name: f"{name}s" for name in ("prompt", "run", "position", "round")} | {"category": "categories"}
ROWS = ("arm", *_TABLES)


@click.command()
@click.argument("run", default="last")
@click.option(
    "--per",
    type=click.Choice(ROWS),
    default="arm",
    show_default=True,
    help="What has a row: an arm, a category or prompt of it, a run, a draft position, a round.",
)
@click.option("--runs", "per", flag_value="run", help="The same as --per run.")
@click.option("--list", "list_runs", is_flag=True, help="List the stored benches, oldest first.")
@output_options
def command(*, run: str, per: str, list_runs: bool, output: str, out: Path | None) -> None:
    """Print the table of a past bench again.

    RUN is the id of a stored bench, the beginning of one, or its folder; the last one without it.

    \b
    ggufspec show                       the last bench
    ggufspec show 20260102 --runs -o csv  every single run of another
    """
    from ggufspec import frames, report, results
    from ggufspec.report.overview import overview

    if list_runs:
        emit("".join(f"{name}\n" for name in results.ids()), out)
        return
    stored = results.load(run)
    if per != "arm":
        emit(report.render(getattr(frames, _TABLES[per])(stored), output, title=_TABLES[per]), out)
    elif output == "md":
        emit(overview(stored), out)
    else:
        emit(report.render(frames.summary(stored), output, title="summary"), out)
