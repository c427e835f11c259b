"""How long the `--help` of every command keeps one waiting, over `python -c "import click"`.

    python scripts/bench_startup.py [--pairs 15] [COMMAND ...]

Each start is timed right beside one of click alone, and the two take turns in going first; what is printed is
the median of their ratios (wanted: at most 1.3). The exit code is 1 where a command misses that.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import terminal

from ggufspec.cli import COMMANDS

GGUFSPEC = (sys.executable, "-m", "ggufspec")
CLICK = (sys.executable, "-c", "import click")
WANTED = 1.3


def main() -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help="these alone; every command without")
    parser.add_argument("--pairs", type=int, default=15, help="starts of each command (default: 15)")
    asked = parser.parse_args()
    every: list[tuple[str, ...]] = [(), *((name,) for name in COMMANDS)]
    lines = [(name,) for name in asked.commands] or every
    for line in lines:  # so that every module is compiled and in the file cache
        _seconds(*GGUFSPEC, *line, "--help")
    found = {" ".join(("ggufspec", *line)): measure(line, asked.pairs) for line in lines}
    for name, (ratio, seconds) in sorted(found.items(), key=lambda each: -each[1][0]):
        print(f"{name:<22} {ratio:.2f} x click  {1000 * seconds:4.0f} ms{'  MISSED' * (ratio > WANTED)}")
    return int(any(ratio > WANTED for ratio, _ in found.values()))


def measure(line: tuple[str, ...], pairs: int) -> tuple[float, float]:
    """Return the median ratio of a command's help to click alone, and its own median seconds."""
    ratios, ours = [], []
    for turn in range(pairs):
        both = ((*GGUFSPEC, *line, "--help"), CLICK)
        spent = {argv: _seconds(*argv) for argv in (both if turn % 2 else both[::-1])}
        ratios.append(spent[both[0]] / spent[CLICK])
        ours.append(spent[both[0]])
    return statistics.median(ratios), statistics.median(ours)


def _seconds(*argv: str) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C.UTF-8"})
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
