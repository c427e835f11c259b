"""``ggufspec compare``: compare two llama.cpps or benches row by row, with exit codes for a CI job."""

from __future__ import annotations

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.tables import emit
from ggufspec.options import CompareOptions

_SIDES = 2


@command_of(CompareOptions)
def command(asked: CompareOptions) -> None:
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
    benches = asked.benches
    from ggufspec.analysis import comparing, guarding
    from ggufspec.cli.steps import benches as stored
    from ggufspec.cli.steps import fleets
    from ggufspec.report import frames
    from ggufspec.report.text import comparison, formats, tables

    if asked.per is not None:
        if len(benches) != _SIDES or asked.tuned is not None or asked.fail_slower is not None or asked.strict:
            raise click.UsageError("--per machine takes two fleets, and neither a tuning nor an exit code")
        fleets.print_comparisons(*benches, threshold=asked.threshold, output=asked.output, out=asked.out)
        return
    if asked.tuned is not None:
        benches = (stored.find_tuned(asked.tuned), *benches)
    if not benches:
        raise click.UsageError("name a bench, or a tuning with --tuned")
    first, second = ([stored.load_bench(name) for name in side] for side in _divide(benches))
    if not second and not first[0].meta.builds:
        second = [stored.load_bench("last")]
    changes = comparing.compare(first if second else first[0], second or None, threshold=asked.threshold)
    guard = None
    if asked.fail_slower is not None and guarding.is_testable(changes):
        guard = guarding.guard(changes, asked.fail_slower)
    if asked.output in tables.FOR_PEOPLE:
        metas = first[0].meta, (second or first)[0].meta
        emit(comparison.comparison(changes, *metas, asked.output, guard), asked.out)
    else:
        rows = frames.comparison(changes, guard)
        emit(formats.render(rows, asked.output, title="comparison", schema="comparison"), asked.out)
    if asked.fail_slower is not None:
        guarding.raise_if_slower(guard or guarding.guard(changes, asked.fail_slower))
    if asked.strict:
        stored.refuse_doubtful([*first, *second])


def _divide(benches: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the benches before and after."""
    if "--" in benches:
        place = benches.index("--")
        before, after = benches[:place], benches[place + 1 :]
        if not before or not after or "--" in after:
            raise click.UsageError("-- stands between the benches before and those after")
        return before, after
    if len(benches) > _SIDES:
        raise click.UsageError("several benches a side are divided by --, as in: A1 A2 A3 -- B1 B2 B3")
    return benches[:1], benches[1:]
