"""``ggufspec bisect``: find the version of llama.cpp that changed a speed or the acceptance rate."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal, words_of_process
from ggufspec.errors import GgufspecError, InconclusiveError
from ggufspec.options import BisectOptions


@command_of(BisectOptions)
def command(asked: BisectOptions) -> None:
    """Find the version of llama.cpp between GOOD and BAD at which drafting became slower or accepted less.

    GOOD and BAD are releases of llama-cpp-python, or with --source commits. First, the two are compared. Then
    versions between them are built and measured in turn with both, until the step is found. At most 5 % of
    bisections end with a wrong verdict. Versions that cannot be built or measured are skipped and named.

    \b
    ggufspec bisect 0.3.9 0.3.36
    ggufspec bisect b4000 b4500 --source ~/llama.cpp --quantity acceptance --draft 8
    """
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import benches
    from ggufspec.report import frames
    from ggufspec.report.text import bisection as text
    from ggufspec.report.text import formats, tables
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
    if asked.output in tables.FOR_PEOPLE:
        emit(text.bisection(bisection, verdict, asked.output), asked.out)
    else:
        rows = frames.bisection(bisection, verdict)
        emit(formats.render(rows, asked.output, title="bisection"), asked.out)
    if verdict.finding in {BisectFinding.NO_DIFFERENCE, BisectFinding.UNDECIDED}:
        raise InconclusiveError(
            text.conclusion(bisection, verdict),
            "raise --max-repeats, or measure on a quiet machine",
        )
    if verdict.finding is BisectFinding.REVERSED:
        raise GgufspecError(text.conclusion(bisection, verdict), "name a newer version that is worse")
