"""Check the map of ``ggufspec crossover`` against a bench that measures every cell.

python scripts/check_crossover.py --work build/crossover
python scripts/check_crossover.py --work build/crossover --parallel 1,2,4,8 --depth 0,512 --repeats 4

The map is made within --max-time, then every cell is measured with all draft sizes. Both benches stay in
--work. A cell agrees if the policy of the map (draft or not) is what the complete bench says; where the
interval of the complete bench includes 1, it says nothing. Run it on a quiet machine. The exit code is 1 if a
cell disagrees.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import terminal

import ggufspec
from ggufspec.analysis import CrossoverCell, map_crossover
from ggufspec.domain import SpeedVerdict
from ggufspec.options import BenchOptions, CrossoverOptions
from ggufspec.options.kinds import Axis, Depths
from ggufspec.results import CrossoverAxes

HEAD = ("users", "depth", "map", "measured completely", "agrees")


def main() -> int:
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["GGUFSPEC_DATA"] = str((asked.work / "data").absolute())
    users, depths = Axis("users", least=1).parse(asked.parallel), Depths().parse(asked.depth)
    request = CrossoverOptions(
        pair=asked.pair, parallel=users, depth=depths, threads=asked.threads, max_time=asked.max_time
    )
    began = time.monotonic()
    found = ggufspec.crossover(request)
    print(f"map in {time.monotonic() - began:.0f} s: {len(found.undecided)} cells undecided", file=sys.stderr)
    axes = CrossoverAxes(users=found.users, depths=found.depths)
    complete = map_crossover(
        ggufspec.bench(request.to(BenchOptions, repeats=asked.repeats, max_time=None)), axes
    )
    terminal.print_head(*HEAD, texts=len(HEAD))
    wrong = 0
    for cell, truth in zip(found.cells, complete.cells, strict=True):
        agrees = _agrees(cell, truth)
        wrong += agrees is False
        words = {True: "yes", False: "no", None: "undecided"}[agrees]
        terminal.print_row(cell.users, f"{cell.depth:,}", _describe(cell), _describe(truth), words)
    decided = sum(truth.verdict is not SpeedVerdict.UNDECIDED for truth in complete.cells)
    print(f"\n{decided - wrong} of {decided} decided cells agree")
    return int(wrong > 0)


def _agrees(cell: CrossoverCell, truth: CrossoverCell) -> bool | None:
    """Whether the policy of a cell is right; None where nothing is decided."""
    if truth.verdict is SpeedVerdict.UNDECIDED:
        return None
    return (cell.choice is not None) == (truth.verdict is SpeedVerdict.FASTER)


def _describe(cell: CrossoverCell) -> str:
    best = cell.best
    if best is None:
        return cell.source.value
    speedup = best.speedup
    return f"{cell.source.value}: γ = {best.draft}, {speedup.value:.2f} [{speedup.lo:.2f}, {speedup.hi:.2f}]"


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for both benches")
    parser.add_argument("--pair", default="demo", help="of the catalogue, by default demo")
    parser.add_argument("--parallel", default="1,2,4,8", help="by default 1,2,4,8")
    parser.add_argument("--depth", default="0,512", help="by default 0,512")
    parser.add_argument("--max-time", type=float, default=300.0, help="seconds for the map, by default 300")
    parser.add_argument("-r", "--repeats", type=int, default=4, help="of the complete bench, by default 4")
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
