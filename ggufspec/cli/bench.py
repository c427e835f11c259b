"""``ggufspec bench``: measure target, drafter and drafting with llama.cpp's own programs."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.options import BenchOptions


@command_of(BenchOptions)
def command(asked: BenchOptions) -> None:
    """Measure the target alone, the drafter alone, and drafting, and print a table.

    \b
    ggufspec bench                     the pair fetched last, or the embedded one
    ggufspec bench --ngl 45 --draft 3  the measurement of the Llama-3 notebook
    ggufspec bench -m big.gguf -md small.gguf --draft 1-8 --precision 2% -o json
    ggufspec bench --tuned last        what the last tuning recommends
    ggufspec bench --llama OLD --llama NEW  two llama.cpps, run in turn
    ggufspec bench -- llama-server -m a.gguf -md b.gguf  what you run today
    """
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import measuring, pasting

    asked, pasted = pasting.read_asked(asked)
    if asked.dry_run:
        emit(measuring.render_commands(measuring.plan(asked)), asked.out)
        return
    results = measuring.run(asked)
    if pasted is not None:
        pasting.print_advice(results, pasted, asked)
