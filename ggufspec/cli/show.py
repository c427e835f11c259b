"""``ggufspec show``: the table of a past bench again; the list of benches, and deleting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import choose_columns, emit
from ggufspec.options import ShowOptions

if TYPE_CHECKING:
    from ggufspec.results import ResultSet

_TABLES = {name: f"{name}s" for name in ("prompt", "run", "position", "round")} | {"category": "categories"}
ROWS = ("arm", *_TABLES)


@command_of(ShowOptions)
def command(asked: ShowOptions) -> None:
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

    if asked.listing and asked.delete is not None:
        raise click.UsageError("--list and --delete exclude each other")
    if asked.listing:
        benches.print_list(asked.output, asked.out)
        return
    if asked.delete is not None:
        benches.delete_bench(asked.delete, yes=asked.yes)
        return
    stored = benches.load_bench(asked.bench, salvage=asked.salvage)
    if asked.checks or asked.variance or asked.plot:
        emit(_render_details(stored, asked.output, checks=asked.checks, variance=asked.variance), asked.out)
    else:
        page = _render_table(stored, asked.per, asked.columns, asked.output)
        if page is not None:
            emit(page, asked.out)
    if asked.strict:
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
