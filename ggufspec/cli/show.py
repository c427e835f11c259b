"""``ggufspec show``: the table of a past bench again; the list of benches, and deleting one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import choose_columns, emit, output_options, strict_option

if TYPE_CHECKING:
    from ggufspec.results import ResultSet

_TABLES = {name: f"{name}s" for name in ("prompt", "run", "position", "round")} | {"category": "categories"}
ROWS = ("arm", *_TABLES)


@click.command()
@click.argument("bench", metavar="[BENCH]", default="last", shell_complete=completions.runs)
@click.option(
    "--per",
    type=click.Choice(ROWS),
    default="arm",
    show_default=True,
    help="Rows of the table: arms, prompts, runs, draft positions, rounds or categories.",
)
@click.option("--runs", "per", flag_value="run", help="Same as --per run.")
@click.option(
    "--columns",
    metavar="NAMES",
    help="Columns to print, such as prompt,draft,n_accepted,gen_s, or all. "
    "[default: at most ten for people, all for programs]",
)
@click.option(
    "--all",
    "checks",
    is_flag=True,
    help="Print each speed-up also by medians, by equal work and without exclusions, acceptance with "
    "intervals, and all that is recorded about build, software and machine.",
)
@click.option(
    "--variance",
    is_flag=True,
    help="Print what the speed-ups vary by, and whether more prompts or more loads would help.",
)
@click.option("--plot", is_flag=True, help="Draw tokens/s over γ as a text chart.")
@click.option("--salvage", is_flag=True, help="Print the readable part of a damaged bench.")
@click.option(
    "--list",
    "listing",
    is_flag=True,
    help="List the stored benches, oldest first.",
)
@click.option(
    "--delete", metavar="BENCH", shell_complete=completions.runs, help="Delete a stored bench with its logs."
)
@click.option("-y", "--yes", is_flag=True, help="Delete without confirmation.")
@strict_option
@output_options
def command(
    *,
    bench: str,
    per: str,
    columns: str | None,
    checks: bool,
    variance: bool,
    plot: bool,
    salvage: bool,
    listing: bool,
    delete: str | None,
    yes: bool,
    strict: bool,
    output: str,
    out: Path | None,
) -> None:
    """Print the table of a stored bench; list or delete stored benches.

    A bench that confirmed a tuning begins with the verdict and the tuned configuration, a crossover with its
    map and policy.

    BENCH is the id of a stored bench, the beginning of one, or its folder. [default: the last bench]

    \b
    ggufspec show                         the last bench
    ggufspec show 20260102 --runs -o csv  every run of another bench
    ggufspec show --runs --columns prompt,draft,n_accepted,gen_tokens,gen_s
    ggufspec show --delete 20260102       after confirmation
    """
    from ggufspec.cli.steps import benches

    if listing and delete is not None:
        raise click.UsageError("--list and --delete exclude each other")
    if listing:
        benches.print_list(output, out)
        return
    if delete is not None:
        benches.delete_bench(delete, yes=yes)
        return
    stored = benches.load_bench(bench, salvage=salvage)
    if checks or variance or plot:
        emit(_render_details(stored, output, checks=checks, variance=variance), out)
    else:
        page = _render_table(stored, per, columns, output)
        if page is not None:
            emit(page, out)
    if strict:
        benches.refuse_doubtful([stored])


def _render_details(stored: ResultSet, output: str, *, checks: bool, variance: bool) -> str:
    """Return the checks of the speed-ups and what is recorded, what they vary by, or else the chart."""
    from ggufspec.report.text import chart, precision, provenance, tables

    if not (checks or variance):
        return chart.curve(stored) or "There is no chart, as nothing was drafted.\n"
    form = output if output in tables.FOR_PEOPLE else "md"
    pages = [precision.checks(stored, form)] if checks else []
    pages += [precision.variance(stored, form)] if variance else []
    pages += [provenance.page(stored)] if checks else []
    return "\n".join(pages)


def _render_table(stored: ResultSet, per: str, columns: str | None, output: str) -> str | bytes | None:
    """Return a table with a row for each arm, prompt, …; None if people see only why it is empty."""
    from ggufspec.analysis import read_crossover
    from ggufspec.cli.steps import benches
    from ggufspec.report import frames
    from ggufspec.report.text import configuration, crossovers, details, figures, formats, overview, tables

    reason = details.why_empty(stored, per)
    if reason is not None:
        echo(reason, err=True)
        if output in tables.FOR_PEOPLE:
            return None
    if per == "arm" and output in tables.FOR_PEOPLE and columns is None:
        tuned = benches.load_configuration(stored.folder)
        head = "" if tuned is None else "\n".join((*configuration.lines(tuned), "", ""))
        crossover = read_crossover(stored)
        if crossover is not None:
            head += crossovers.text(crossover, {}, output) + "\n"
        return head + benches.describe_incomplete(stored) + overview.overview(stored, output)
    title = "summary" if per == "arm" else _TABLES[per]
    table = getattr(frames, title)(stored)
    if per in {"run", "round"} and output in tables.FOR_PEOPLE:
        table = frames.sort_by_arm(table, stored)
    hidden = 0
    if columns is not None:
        table = table[choose_columns(columns, list(table.columns))]
    elif output in tables.FOR_PEOPLE:
        names, hidden = details.choose(table, per)
        table = table[names]
    schema = "summary" if per == "arm" and columns is None else None
    text = formats.render(table, output, title=title, origin=frames.origin(stored.meta), schema=schema)
    if isinstance(text, str) and output in tables.FOR_PEOPLE:
        note = "".join(f"\n{line}\n" for line in overview.note(hidden, stored.meta.id, per))
        text = f"{figures.engine(stored.meta.engine)}\n\n{text}{note}"
    return text
