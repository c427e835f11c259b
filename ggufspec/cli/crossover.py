"""``ggufspec crossover``: for how many users, and how long a context, drafting pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import CrossoverOptions

if TYPE_CHECKING:
    from ggufspec.analysis import CrossoverMap
    from ggufspec.results import ResultSet


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
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import benches
    from ggufspec.results import load

    crossover = api.crossover(asked, sink=Terminal(benches.describe_continuing))
    results = load(crossover.bench)
    emit(_render(crossover, results, asked.output), asked.out)
    benches.raise_for_failures(results)
    if asked.strict:
        benches.refuse_doubtful([results])


def _render(crossover: CrossoverMap, results: ResultSet, output: str) -> str | bytes:
    from ggufspec.analysis import review
    from ggufspec.report.text import crossovers, formats, tables

    if output in tables.FOR_PEOPLE:
        return crossovers.text(crossover, review.warnings(results), output)
    if output == "json":
        return crossovers.as_json(crossover, results)
    from ggufspec.report import frames

    table, origin = frames.crossover(crossover), frames.origin(results.meta)
    return formats.render(table, output, title="crossover", origin=origin)
