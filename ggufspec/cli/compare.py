"""``ggufspec compare``: compare two llama.cpps or benches row by row, with exit codes for a CI job."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.entry.command import BETWEEN, DividedArgument
from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Fraction, emit, output_options, strict_option
from ggufspec.cli.options.tuned import tuned_option

_SIDES = 2


@click.command()
@click.argument(
    "benches",
    cls=DividedArgument,
    nargs=-1,
    metavar="BENCH... [-- BENCH...]",
    shell_complete=completions.runs,
)
@tuned_option("Compare with the bench that confirmed this tuning.", decides=False)
@click.option(
    "--fail-slower",
    type=Fraction(),
    help="Exit with code 33 if drafting is significantly slower by more than this (3%), and with 34 if more "
    "runs are needed to decide.",
)
@click.option(
    "--threshold",
    type=Fraction(),
    default="1%",
    show_default=True,
    help="Smallest change that counts as a difference.",
)
@click.option(
    "--per",
    type=click.Choice(["machine"]),
    help="Compare two fleets, each machine with itself: BENCHES are their names.",
)
@strict_option
@output_options
def command(
    *,
    benches: tuple[str, ...],
    per: str | None,
    tuned: str | None,
    fail_slower: float | None,
    threshold: float,
    strict: bool,
    output: str,
    out: Path | None,
) -> None:
    """Compare the two llama.cpps of a bench, or stored benches of two builds, machines or settings.

    BENCHES are ids or names, the beginning of one, or folders. One bench of two llama.cpps is compared in
    itself; another one is compared with the last. Benches measured at different times get no verdict unless
    there are three or more on each side of `--`.

    \b
    ggufspec bench --llama OLD --llama NEW --name ab && ggufspec compare ab --fail-slower 2%
    ggufspec compare b9102 today
    ggufspec compare old1 old2 old3 -- new1 new2 new3
    ggufspec bench --tuned big --name today && ggufspec compare --tuned big today
    ggufspec compare --per machine monday tuesday
    """
    from ggufspec.analysis import comparing, guarding
    from ggufspec.cli.steps import benches as stored
    from ggufspec.cli.steps import fleets
    from ggufspec.report import frames
    from ggufspec.report.text import comparison, formats, tables

    if per is not None:
        if len(benches) != _SIDES or tuned is not None or fail_slower is not None or strict:
            raise click.UsageError("--per machine takes two fleets, and neither a tuning nor an exit code")
        fleets.print_comparisons(*benches, threshold=threshold, output=output, out=out)
        return
    if tuned is not None:
        benches = (stored.find_tuned(tuned), *benches)
    if not benches:
        raise click.UsageError("name a bench, or a tuning with --tuned")
    first, second = ([stored.load_bench(name) for name in side] for side in _divide(benches))
    if not second and not first[0].meta.builds:
        second = [stored.load_bench("last")]
    changes = comparing.compare(first if second else first[0], second or None, threshold=threshold)
    guard = None
    if fail_slower is not None and guarding.is_testable(changes):
        guard = guarding.guard(changes, fail_slower)
    if output in tables.FOR_PEOPLE:
        metas = first[0].meta, (second or first)[0].meta
        emit(comparison.comparison(changes, *metas, output, guard), out)
    else:
        rows = frames.comparison(changes, guard)
        emit(formats.render(rows, output, title="comparison", schema="comparison"), out)
    if fail_slower is not None:
        guarding.raise_if_slower(guard or guarding.guard(changes, fail_slower))
    if strict:
        stored.refuse_doubtful([*first, *second])


def _divide(benches: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the benches before and after."""
    if BETWEEN in benches:
        place = benches.index(BETWEEN)
        before, after = benches[:place], benches[place + 1 :]
        if not before or not after or BETWEEN in after:
            raise click.UsageError("-- stands between the benches before and those after")
        return before, after
    if len(benches) > _SIDES:
        raise click.UsageError("several benches a side are divided by --, as in: A1 A2 A3 -- B1 B2 B3")
    return benches[:1], benches[1:]
