"""How much of a bench is llama.cpp itself, and how long `--help` keeps one waiting.

    python scripts/bench_overhead.py

Prints two ratios, each from one run on this machine: seconds inside llama.cpp's processes over the wall time
of a whole demo bench (wanted: at least 0.95), and `ggufspec --help` over `python -c "import click"` (wanted:
at most 1.3). Inside llama.cpp are its runs, and the text audit, in which its library scores every text.

Python may keep the byte code that it compiles, as it does unless PYTHONDONTWRITEBYTECODE is set, and it is
compiled before anything is timed. Without it, every command compiles everything that it imports: a second.
"""

from __future__ import annotations

import os
import re
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
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        measure_once()
        of_runs, of_audit, wall_s = shares_of_llama()
    ratio = help_over_click()
    share = of_runs + of_audit
    outside = f"{wall_s * (1 - share):.1f} of {wall_s:.1f} s outside"
    parts = f"runs {of_runs:.3f}, text audit {of_audit:.3f}; {outside}"
    print(f"inside llama.cpp: {share:.3f} of the bench's wall time (wanted: at least 0.95); {parts}")
    print(f"ggufspec --help: {ratio:.2f} x python -c 'import click' (wanted: at most 1.3)")
    sys.exit(share < 0.95 or ratio > 1.3)


def measure_once() -> None:
    """Measure one run of each arm, so that everything was imported once."""
    few = ("--draft", "3", "-n", "16", "-p", "Once", "-r", "1", "-t", "1")
    subprocess.run([*GGUFSPEC, "bench", "--pair", "demo", *few], check=True, capture_output=True)


def shares_of_llama() -> tuple[float, float, float]:
    """Run the demo bench as a user does; return the shares of runs and text audit, and its wall time in s."""
    started = time.perf_counter()
    done = subprocess.run(
        [*GGUFSPEC, "-v", "bench", "--pair", "demo"], check=True, stderr=subprocess.PIPE, text=True
    )
    wall_s = time.perf_counter() - started
    audits = re.findall(r"text audit: .* in ([\d.]+) s$", done.stderr, re.MULTILINE)

    import ggufspec

    runs_s = sum(run.program_s for run in ggufspec.load("last").runs)
    return runs_s / wall_s, sum(map(float, audits)) / wall_s, wall_s


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
