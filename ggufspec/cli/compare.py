"""``ggufspec compare``: compare two benches row by row, with an exit code for continuous integration."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Fraction, emit, output_options


@click.command()
@click.argument("before", shell_complete=completions.runs)
@click.argument("after", default="last", shell_complete=completions.runs)
@click.option(
    "--fail-slower",
    type=Fraction(),
    help="Exit with code 33 if a row is significantly slower by more than this: 3%.",
)
@click.option(
    "--threshold",
    type=Fraction(),
    default="1%",
    show_default=True,
    help="Smallest change that counts as a difference.",
)
@output_options
def command(
    *, before: str, after: str, fail_slower: float | None, threshold: float, output: str, out: Path | None
) -> None:
    """Compare two stored benches: two builds of llama.cpp, two machines, or before and after a change.

    BEFORE and AFTER are the ids or names of benches, the beginning of one, or folders.

    \b
    ggufspec compare b9102 today
    ggufspec compare baseline last --fail-slower 3%
    """
    from ggufspec.analysis import comparing
    from ggufspec.cli.steps import benches
    from ggufspec.report import frames
    from ggufspec.report.text import comparison, formats, tables

    first, second = benches.load_bench(before), benches.load_bench(after)
    changes = comparing.compare(first, second, threshold=fail_slower or threshold)
    if output in tables.FOR_PEOPLE:
        emit(comparison.comparison(changes, first.meta, second.meta, output), out)
    else:
        emit(formats.render(frames.comparison(changes), output, title="comparison"), out)
    if fail_slower is not None:
        comparing.raise_if_slower(changes, fail_slower)
