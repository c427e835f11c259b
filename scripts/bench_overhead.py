"""How much of a bench is llama.cpp itself, and how long `--help` keeps one waiting.

    python scripts/bench_overhead.py

Prints two ratios, each from one run on this machine: seconds inside llama.cpp's processes over the wall time
of a whole demo bench (wanted: at least 0.95), and `ggufspec --help` over `python -c "import click"` (wanted:
at most 2).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

GGUFSPEC = (sys.executable, "-m", "ggufspec")
PAIRS = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as data:
        os.environ["GGUFSPEC_DATA"] = data
        share = share_of_llama()
    ratio = help_over_click()
    print(f"inside llama.cpp: {share:.3f} of the bench's wall time (wanted: at least 0.95)")
    print(f"ggufspec --help: {ratio:.2f} x python -c 'import click' (wanted: at most 2)")
    sys.exit(share < 0.95 or ratio > 2)


def share_of_llama() -> float:
    """Run the demo bench as a user does; return the share of its wall time that llama.cpp had."""
    started = time.perf_counter()
    subprocess.run([*GGUFSPEC, "bench", "--pair", "demo"], check=True)
    wall_s = time.perf_counter() - started

    import ggufspec

    return sum(run.program_s for run in ggufspec.load("last").runs) / wall_s


def help_over_click() -> float:
    """Time both commands in alternation; return the median of the paired ratios."""
    ratios = []
    for _ in range(PAIRS):
        ours = _seconds(*GGUFSPEC, "--help")
        ratios.append(ours / _seconds(sys.executable, "-c", "import click"))
    return statistics.median(ratios)


def _seconds(*argv: str) -> float:
    started = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
