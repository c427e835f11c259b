"""``ggufspec sweep``: measure every combination of settings."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.tables import emit
from ggufspec.options import SweepOptions


@command_of(SweepOptions)
def command(asked: SweepOptions) -> None:
    """Measure every combination of lists (3,5,8), ranges (1-8, 0-80+20, 1-16*2) and repeated options.

    Each run is stored before the next one starts. --resume continues an interrupted sweep without repeating
    finished runs; values can be added to its options.

    \b
    ggufspec sweep --ngl 0-80+20 --draft 1-8,12,16 --name nightly
    ggufspec sweep -m big.gguf -md small.gguf -md tiny.gguf --p-min 0,0.4,0.8 --dry-run
    """
    from ggufspec.cli.steps import measuring
    from ggufspec.report.text import plans

    if asked.dry_run:
        session = measuring.plan(asked)
        emit(plans.sweep_plan(session.suite, asked.output, session.engine.name), asked.out)
    else:
        measuring.run(asked)
