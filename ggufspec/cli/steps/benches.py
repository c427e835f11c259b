"""Stored benches on the command line: load, list and delete them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec import results
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options.shared import emit
from ggufspec.errors import ConsentNeededError, ResultsError

if TYPE_CHECKING:
    from ggufspec.forecast import Forecast
    from ggufspec.results import ResultSet


def load_bench(run: str, *, salvage: bool = False) -> ResultSet:
    """Load a bench, and print warnings about damaged parts.

    Raises:
        ResultsError: there is no such bench, or it is damaged.
    """
    stored = results.load(run, salvage=salvage)
    warn_of_damage(stored)
    return stored


def warn_of_damage(stored: ResultSet) -> None:
    """Print which parts of a bench cannot be read."""
    for sentence in stored.damage:
        echo(f"warning: {stored.meta.id}: {sentence}", err=True)


def load_forecasts(folder: Path) -> tuple[Forecast, ...]:
    """Return the forecasts of a bench; if damaged, none, with a warning."""
    from ggufspec.forecast import profiles

    try:
        return profiles.kept(folder)
    except ResultsError as error:
        echo(f"warning: {error.message}; the forecasts are left out", err=True)
        return ()


def print_list(output: str, out: Path | None) -> None:
    """Print or write the list of stored benches."""
    from ggufspec.analysis import listing
    from ggufspec.report import frames
    from ggufspec.report.text import formats, tables
    from ggufspec.report.text import listing as bench_list

    benches = listing.stored_benches()
    if output in tables.FOR_PEOPLE:
        emit(bench_list.table(benches, output), out)
    else:
        emit(formats.render(frames.benches(benches), output, title="benches"), out)


def delete_bench(run: str, *, yes: bool) -> None:
    """Delete a bench after confirmation, or with ``yes``.

    Raises:
        ConsentNeededError: there is no terminal to ask on.
        ResultsError: there is no such bench in the store, or it is being written.
    """
    name = results.find_bench(run).name
    if not yes:
        if not sys.stdin.isatty():
            raise ConsentNeededError(f"deleting the bench {name} needs confirmation", "add --yes")
        click.confirm(f"Delete the bench {name} with all its logs?", abort=True, err=True)
    results.delete(name)
    echo(f"deleted: {name}", err=True)
