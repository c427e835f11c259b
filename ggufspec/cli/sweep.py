"""``ggufspec sweep``: every combination of the axes' values, in a store that survives anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ggufspec.cli.options.bench import asking
from ggufspec.cli.options.shared import emit, output_options


@click.command()
@asking(many=True)
@click.option("--plan", is_flag=True, help="Print what would be measured and how long it may take.")
@output_options
def command(
    *, plan: bool, name: str | None, resume: str | None, output: str, out: Path | None, **asked: Any
) -> None:
    """Measure every combination: lists (3,5,8), ranges (1-8, 0-80+20, 1-16*2), repeated options.

    Each run is on disk before the next one starts. A sweep that was cut off goes on with --resume, without
    repeating a finished run, also when its axes grew meanwhile.

    \b
    ggufspec sweep --ngl 0-80+20 --draft 1-8,12,16 --name nightly
    ggufspec sweep -m big.gguf -md small.gguf -md tiny.gguf --p-min 0,0.4,0.8 --plan
    """
    from ggufspec.cli.steps import measuring
    from ggufspec.report.text import cells

    session = measuring.prepare(asked)
    if plan:
        emit(cells.cells(session.suite, output, session.engine.name), out)
        return
    measuring.run(session, name=name, resume=resume, output=output, out=out)
