"""Time the table of a fleet beside that of a bench of one machine with as many runs.

    python scripts/bench_fleet.py [--runs 100000] [--machines 50]

Both are loaded and summarised completely, with intervals and warnings. Times are the best of three in
alternation, in processor seconds. Fails if the fleet takes more than three times as long.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import terminal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench_store import store, synthetic, timed  # noqa: E402

from ggufspec import fleet, results  # noqa: E402
from ggufspec.choices import Where  # noqa: E402
from ggufspec.fleet import MachineJoined  # noqa: E402
from ggufspec.fleet.journal import create_fleet  # noqa: E402
from ggufspec.report import frames  # noqa: E402

GOAL = 3.0
REPEATS = 3


def main() -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--machines", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GGUFSPEC_DATA"] = folder
        store("local", synthetic(arguments.runs, repetitive=True))
        store_fleet(arguments.runs // arguments.machines, arguments.machines)
        calls = {
            "one machine": lambda: frames.summary(results.load("local")),
            "fleet": lambda: frames.machines(fleet.read_benches(fleet.read_fleet("fleet"))),
        }
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(REPEATS):
            for name, call in calls.items():
                (processor_s, _), _ = timed(call)
                best[name] = min(best[name], processor_s)
    ratio = best["fleet"] / best["one machine"]
    for name, seconds in best.items():
        print(f"{name}: {arguments.runs:,} runs loaded and summarised in {seconds:.2f} s of processor time")
    print(f"{ratio:.2f} times: {GOAL:g} times {'reached' if ratio <= GOAL else 'MISSED'}")
    return 0 if ratio <= GOAL else 1


def store_fleet(n_runs: int, machines: int) -> None:
    """Store so many runs of each machine as a fleet."""
    journal = create_fleet("fleet", command=(), where=Where.EACH)
    for number in range(machines):
        machine = f"m{number}"
        bench = store(f"fleet.{machine}", synthetic(n_runs, repetitive=True)).name
        journal.append(MachineJoined(machine=machine, hostname=machine, bench=bench))
    journal.close()


if __name__ == "__main__":
    sys.exit(main())
