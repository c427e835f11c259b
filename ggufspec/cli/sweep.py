"""``ggufspec sweep``: measure every combination of settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.options.bench import measure_options
from ggufspec.cli.options.shared import emit, output_options, pass_options, strict_option

if TYPE_CHECKING:
    from ggufspec.cli.options.values import BenchOptions


@click.command()
@measure_options(many=True)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be measured and the expected time, without measuring."
)
@strict_option
@output_options
@pass_options
def command(
    options: BenchOptions,
    *,
    dry_run: bool,
    name: str | None,
    resume: str | None,
    strict: bool,
    output: str,
    out: Path | None,
) -> None:
    """Measure every combination of lists (3,5,8), ranges (1-8, 0-80+20, 1-16*2) and repeated options.

    Each run is stored before the next one starts. --resume continues an interrupted sweep without repeating
    finished runs; values can be added to its options.

    \b
    ggufspec sweep --ngl 0-80+20 --draft 1-8,12,16 --name nightly
    ggufspec sweep -m big.gguf -md small.gguf -md tiny.gguf --p-min 0,0.4,0.8 --dry-run
    """
    from ggufspec.cli.steps import measuring
    from ggufspec.report.text import plans

    session = measuring.prepare_bench(options)
    if dry_run:
        emit(plans.sweep_plan(session.suite, output, session.engine.name), out)
        return
    measuring.run_bench(session, name=name, resume=resume, output=output, out=out, strict=strict)
