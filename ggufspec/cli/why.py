"""``ggufspec why``: where the time of a round goes, and which change would pay most."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, terminal_width
from ggufspec.cli.entry.tables import default_output
from ggufspec.options import BenchOptions, WhyOptions


@command_of(WhyOptions)
def command(asked: WhyOptions) -> None:
    """Show where the time goes: drafting, verification and the rest, and the change that would pay most.

    Of the arms that draft, the fastest one is shown, with its target alone. BENCH is the id of a stored
    bench, the beginning of one, or its folder. [default: the last bench] Only the engine inprocess measures
    the parts of a round with every llama.cpp; with others, the drafter's time is that of its runs alone.

    \b
    ggufspec bench --draft 3 --engine inprocess && ggufspec why
    ggufspec why b9102                      another bench
    ggufspec why -- llama-server -m a.gguf -md b.gguf   measures it first
    """
    from ggufspec.cli.steps import benches, measuring, pasting
    from ggufspec.report.text import reasons

    bench, pasted = pasting.read_asked(BenchOptions(from_text=asked.from_text, output=default_output(None)))
    results = benches.load_bench(asked.run) if pasted is None else measuring.run(bench)
    echo(reasons.why(results, width=terminal_width()), nl=False)
