"""The options of a tuning, on this machine or on several."""

from __future__ import annotations

import click

from ggufspec.cli.options.axes import Quants
from ggufspec.cli.options.shared import Duration, Fraction, Size, add_options

tuning_options = add_options(
    click.option(
        "--quantize-drafter",
        type=Quants(),
        metavar="TYPES",
        help="Try the drafters in these quantizations, too: Q8_0,Q5_K_M,Q4_0. llama-quantize makes them "
        "once.",
    ),
    click.option("--vram", type=Size(), help="GPU memory to plan with, such as 24G. [default: free memory]"),
    click.option(
        "--max-time",
        type=Duration(),
        default="5m",
        show_default=True,
        help="Time limit for the complete tuning: 2m, 1h.",
    ),
    click.option(
        "--precision",
        type=Fraction(),
        default="2%",
        show_default=True,
        help="Wanted margin of the speed-ups.",
    ),
    click.option("--fresh", is_flag=True, help="Measure costs again even if they are stored."),
)
"""Add --quantize-drafter, --vram, --max-time, --precision and --fresh."""
