"""``ggufspec crossover``: for how many users, and how long a context, drafting pays."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.options import CrossoverOptions


@command_of(CrossoverOptions)
def command(asked: CrossoverOptions) -> None:
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

    crossing.run_crossover(asked)
