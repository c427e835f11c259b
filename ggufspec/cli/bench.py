"""``ggufspec bench``: measure target, drafter and drafting with llama.cpp's own programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.options.bench import measure_options
from ggufspec.cli.options.shared import output_options, pass_options, strict_option
from ggufspec.cli.options.tuned import tuned_option

if TYPE_CHECKING:
    from ggufspec.cli.options.values import BenchOptions


@click.command()
@measure_options(many=False)
@tuned_option("Measure the configuration of this tuning: models, drafting, placement, context and engine.")
@click.option("--dry-run", is_flag=True, help="Print the commands, ready to paste, without running them.")
@strict_option
@output_options
@pass_options
def command(
    options: BenchOptions,
    *,
    tuned: str | None,
    dry_run: bool,
    name: str | None,
    resume: str | None,
    strict: bool,
    output: str,
    out: Path | None,
) -> None:
    """Measure the target alone, the drafter alone, and drafting, and print a table.

    \b
    ggufspec bench                     the pair fetched last, or the embedded one
    ggufspec bench --ngl 45 --draft 3  the measurement of the Llama-3 notebook
    ggufspec bench -m big.gguf -md small.gguf --draft 1-8 --precision 2% -o json
    ggufspec bench --tuned last        what the last tuning recommends
    ggufspec bench --llama OLD --llama NEW  two llama.cpps, run in turn
    """
    from ggufspec.cli.steps import measuring

    session = measuring.prepare_bench(options, tuned)
    if dry_run:
        measuring.show_commands(session, out)
        return
    measuring.run_bench(session, name=name, resume=resume, output=output, out=out, strict=strict)
