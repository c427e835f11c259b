"""How long commands take that were given --max-time: asked against used, quiet and beside a busy loop.

    python scripts/bench_max_time.py [--models demo,FILE] [--limits 1m,2m,5m,10m]
                                     [--commands tune,auto,crossover]

Each cell is one command, from its start to its last line, with a data folder of its own. A limit is kept if
the command ends within 110 % of it, or is refused (exit code 41) before. ``demo`` is the embedded pair; a
model file has no drafter, so its methods draft from the text so far.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import terminal

from ggufspec import units
from ggufspec.errors import InconclusiveError, TimeLimitError
from ggufspec.measure import OVERRUN

GGUFSPEC = (sys.executable, "-m", "ggufspec")
DEMO = "demo"
BUSY_LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent:  # so that it ends with this script, however that ends
    pass
"""
OUTCOMES = {0: "ended", TimeLimitError.exit_code: "refused", InconclusiveError.exit_code: "no verdict"}


class Cell(NamedTuple):
    """What one command took."""

    command: str
    model: str
    beside: str
    asked_s: float
    used_s: float
    outcome: str
    says: str

    @property
    def is_kept(self) -> bool:
        return self.used_s <= self.asked_s * (1 + OVERRUN)


def main() -> None:
    parser = terminal.parser(__doc__)
    parser.add_argument("--models", default=DEMO, help="of demo (the embedded pair) and model files")
    parser.add_argument("--limits", default="1m,2m,5m,10m", help="what --max-time is given")
    parser.add_argument("--commands", default="tune,auto", help="of tune, auto and crossover")
    parser.add_argument("--beside", default="quiet,busy", help="of quiet and busy: one busy loop beside it")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the command and its busy loop end, too
    limits = [units.parse_duration(text) for text in asked.limits.split(",")]
    cells = []
    terminal.print_head("command", "model", "beside", "asked", "used", "kept", "outcome", "says", texts=8)
    for beside in asked.beside.split(","):
        for command in asked.commands.split(","):
            for model in asked.models.split(","):
                for limit_s in limits:
                    words = _words(command, model)
                    if words is None:
                        continue
                    with busy_loops(1 if beside == "busy" else 0):
                        cell = _measure(command, words, model, beside, limit_s)
                    cells.append(cell)
                    terminal.print_row(*_row(cell))
    sys.exit(not all(cell.is_kept for cell in cells))


def _words(command: str, model: str) -> list[str] | None:
    """Return a command line; None for a crossover of a model without a drafter."""
    if command == "auto":
        return ["auto", "--offline", "--yes", model]
    if model != DEMO:
        return ["tune", "-m", model] if command == "tune" else None
    return [command, "--pair", model]


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Keep so many cores busy in the block, as other programs do."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _measure(command: str, words: list[str], model: str, beside: str, limit_s: float) -> Cell:
    with tempfile.TemporaryDirectory() as data:
        begun = time.monotonic()
        done = subprocess.run(
            [*GGUFSPEC, *words, "--max-time", units.duration_option(limit_s)],
            env=os.environ | {"GGUFSPEC_DATA": data},
            capture_output=True,
            text=True,
            check=False,
        )
        used_s = time.monotonic() - begun
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error:", "--max-time"))]
    return Cell(
        command=command,
        model="embedded pair" if model == DEMO else Path(model).name,
        beside=beside,
        asked_s=limit_s,
        used_s=used_s,
        outcome=OUTCOMES.get(done.returncode, f"exit code {done.returncode}"),
        says=lines[-1] if lines else "",
    )


def _row(cell: Cell) -> tuple[str, ...]:
    asked, used = units.duration_option(cell.asked_s), f"{cell.used_s:.0f} s"
    kept = "yes" if cell.is_kept else "no"
    return cell.command, cell.model, cell.beside, asked, used, kept, cell.outcome, cell.says


if __name__ == "__main__":
    main()
