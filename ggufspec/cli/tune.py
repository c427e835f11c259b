"""``ggufspec tune``: which drafter, draft size and offload are fastest here, or should nothing draft?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggufspec.cli.options.bench import asking
from ggufspec.cli.options.shared import Duration, Fraction, Size, output_options


@click.command()
@asking(many=True, repeating=False, engine="server")
@click.option("--vram", type=Size(), help="The GPU's memory, such as 24G; else what is detected as free.")
@click.option(
    "--max-time", type=Duration(), default="5m", show_default=True, help="For everything together: 2m, 1h."
)
@click.option(
    "--precision", type=Fraction(), default="2%", show_default=True, help="Wanted of the speed-ups."
)
@click.option("--fresh", is_flag=True, help="Measure costs anew even where they are known.")
@click.option("--forecast", is_flag=True, help="Print what is forecast of every configuration, and stop.")
@output_options
def command(*, output: str, out: Path | None, **asked: Any) -> None:
    """Find the fastest drafter, draft size and offload, or say that drafting does not pay.

    One look at target and drafters forecasts every configuration; the best few are then measured beside
    the target alone, in the engine that you will use. --forecast stops before that.

    \b
    ggufspec tune                                     the last fetched pair, about five minutes
    ggufspec tune -m big.gguf -md a.gguf -md b.gguf   several drafters, one of them or none
    """
    from ggufspec.cli.steps import tuning

    tuning.run(asked, output, out)
