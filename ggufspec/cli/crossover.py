"""``ggufspec crossover``: for how many users, and how long a context, drafting pays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.bench import grid_options, measure_options
from ggufspec.cli.options.shared import Duration, output_options, pass_options, strict_option

if TYPE_CHECKING:
    from ggufspec.cli.options.values import CrossoverOptions


@click.command()
@measure_options(many=False, repeating=False, engine="server", n_predict=96)
@grid_options
@click.option(
    "--max-time",
    type=Duration(),
    default="5m",
    show_default=True,
    help="Time limit for the complete crossover: 10m, 2h.",
)
@click.option(
    "--resume", metavar="BENCH", shell_complete=completions.runs, help="Continue an interrupted crossover."
)
@strict_option
@output_options
@pass_options
def command(
    options: CrossoverOptions,
    *,
    name: str | None,
    resume: str | None,
    strict: bool,
    output: str,
    out: Path | None,
) -> None:
    """Map the best γ and its speed-up over users and context depth, and say where drafting stops paying.

    The server is computed for all cells first, from a trace of the prompts and timed costs. The ends of both
    axes are measured next, and the other cells are forecast: as computed, corrected by the measured cells.
    Then cells are measured whose verdict is in doubt, until all are decided or --max-time is over. -o json
    prints the map with all draft sizes. `show` and `report` print and draw it again.

    --parallel takes lists and ranges: 1,2,4,8 or 1-16. A range of --depth doubles: 0-32k is 0, 4096, 8192,
    16384 and 32768 tokens.

    \b
    ggufspec crossover --pair demo --parallel 1,2,4,8 --depth 0,512
    ggufspec crossover -m big.gguf -md small.gguf --parallel 1-16 --depth 0-32k --max-time 2h
    """
    from ggufspec.cli.steps import crossing

    crossing.run_crossover(options, name=name, resume=resume, output=output, out=out, strict=strict)
