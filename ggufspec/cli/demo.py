"""``ggufspec demo``: build llama.cpp if there is none, and measure the embedded pair."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.options import DemoOptions


@command_of(DemoOptions)
def command(asked: DemoOptions) -> None:
    """Build llama.cpp if there is none, and measure the embedded pair at γ 3 and 8.

    No model is downloaded. The last line says how long each step took.

    \b
    ggufspec demo
    ggufspec demo -o json --out demo.json
    """
    from ggufspec.cli.steps import demonstrating

    demonstrating.run_demo(asked)
