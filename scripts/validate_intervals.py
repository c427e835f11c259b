"""Check by simulation that intervals contain the true value, and that verdicts are true, on every path.

    python scripts/validate_intervals.py
    python scripts/validate_intervals.py --only 'running servers*' --simulations 200

A path is a kind of bench or comparison with a known truth: see ``interval_paths/``. Its stored records go
through the code that prints intervals and verdicts; no llama.cpp is needed. The table says how many intervals
hold the true value, how many simulations have a verdict that contradicts the truth, how many find a
difference that is there, the mean half width of the intervals, that over the one of an estimator that knows
the variances, and by how much a tuning's choice is slower than the best. Fails where a path misses its goals:
at least 93 % hold, at most 5 % are false.
"""

from __future__ import annotations

import argparse
import sys
import time
from fnmatch import fnmatch
from itertools import chain

import terminal
from interval_paths import (
    acceptances,
    builds,
    categories,
    core,
    crossover,
    disturbance,
    drifting,
    energy,
    failing,
    many_arms,
    outliers,
    precision,
    refused,
    sequences,
    servers,
    texts,
    tunings,
    users,
)
from interval_paths.paths import HEADINGS, run

FAMILIES = (
    core,
    outliers,
    categories,
    acceptances,
    precision,
    sequences,
    many_arms,
    tunings,
    crossover,
    builds,
    servers,
    users,
    energy,
    failing,
    disturbance,
    refused,
    drifting,
    texts,
)
FIRST_SEED = 1_000_000  # seeds from here on were never used to choose a constant


def main() -> int:
    """Print the table, and return whether a path misses its goals."""
    asked = _arguments()
    started = time.process_time()
    terminal.print_head(*HEADINGS)
    missed: list[str] = []
    for path in chain.from_iterable(family.PATHS for family in FAMILIES):
        if fnmatch(path.name, asked.only):
            cells, faults = run(path, range(asked.seed, asked.seed + asked.simulations))
            terminal.print_row(*cells)
            missed += faults
    seconds = time.process_time() - started
    print(
        f"\nSeeds {asked.seed:,} to {asked.seed + asked.simulations - 1:,}, {seconds:.0f} s of processor time"
    )
    print("\n".join(missed) or "passed")
    return int(bool(missed))


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--simulations", type=int, default=1000, help="of each path, by default 1,000")
    parser.add_argument("--only", default="*", metavar="NAME", help="paths with such a name; * is any text")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the first of them")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
