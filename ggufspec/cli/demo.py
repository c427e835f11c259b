"""``ggufspec demo``: build llama.cpp if there is none, and measure the embedded pair."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.options.shared import Count, Number, output_options


@click.command()
@click.option(
    "-r", "--repeats", type=Count(1), default=3, show_default=True, help="Measured runs of each prompt."
)
@click.option("-t", "--threads", type=Count(1), help="CPU threads. [default: all physical cores]")
@click.option(
    "--environment-s", type=Number(0), hidden=True, help="Seconds that scripts/demo took for the environment."
)
@output_options
def command(
    *, repeats: int, threads: int | None, environment_s: float | None, output: str, out: Path | None
) -> None:
    """Build llama.cpp if there is none, and measure the embedded pair at γ 3 and 8.

    No model is downloaded. The last line says how long each step took.

    \b
    ggufspec demo
    ggufspec demo -o json --out demo.json
    """
    from ggufspec.cli.steps import demonstrating

    demonstrating.run_demo(
        repeats=repeats, threads=threads, environment_s=environment_s, output=output, out=out
    )
