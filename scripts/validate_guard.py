#!/usr/bin/env python
"""Simulate guards (`compare --fail-slower 2%`), count what they find; prints the table of docs/howto/ci.md.

A bench measures two builds in turn: every prompt of every arm once a repeat with each. Its noise, as standard
deviations of logarithms: 2 % from run to run, 1.5 % from load to load, and 3 % of all runs of a repeat
together. A process of its own for each run is a load of its own; a server is loaded once an arm, build and
repeat.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import terminal

from ggufspec import stats
from ggufspec.analysis import FAIL_ERROR, PASS_ERROR

SHARE = 0.02
ROWS = 18
RUN_SD, LOAD_SD, REPEAT_SD = 0.02, 0.015, 0.03
SEED = 16


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much a bench measures."""

    prompts: int
    repeats: int
    keeps_loads: bool = False  # a server


RECOMMENDED = Plan(prompts=8, repeats=16)
PLANS = (
    RECOMMENDED,
    Plan(prompts=8, repeats=8),
    Plan(prompts=8, repeats=40, keeps_loads=True),
)
LOSSES = (0.0, 0.01, 0.02, 0.03, 0.05)


def simulate(plan: Plan, loss: float, *, rows: int, count: int, losing: int | None = None) -> Counter[str]:
    """Return how many guards failed, passed and were undecided.

    Args:
        plan: of the bench.
        loss: of speed.
        rows: how many arms draft.
        count: how many benches.
        losing: how many of the rows lose; None for all.
    """
    chance = np.random.default_rng((SEED, plan.prompts, plan.repeats, int(loss * 1000), losing or 0))
    truth = np.zeros(rows)
    truth[: rows if losing is None else losing] = math.log1p(-loss)
    shape = (2, rows, plan.prompts, plan.repeats)
    loads = (2, rows, 1, plan.repeats) if plan.keeps_loads else shape
    found: Counter[str] = Counter()
    for _ in range(count):
        logs = chance.normal(0, RUN_SD, shape) + chance.normal(0, LOAD_SD, loads)
        logs += chance.normal(0, REPEAT_SD, (1, 1, 1, plan.repeats))
        differences = (logs[1] - logs[0]).mean(axis=1) + truth[:, None]
        effects = [effect for row in differences if (effect := stats.pair_units(row)) is not None]
        tests = stats.judge_limits(effects, math.log1p(-SHARE), fail_error=FAIL_ERROR, pass_error=PASS_ERROR)
        if any(test.is_below for test in tests):
            found["failed"] += 1
        elif all(test.is_above for test in tests):
            found["passed"] += 1
        else:
            found["undecided"] += 1
    return found


def main() -> None:
    """Print a table."""
    count: int = _arguments().benches
    terminal.print_head("bench", "true loss", "failed (33)", "passed (0)", "undecided (34)", texts=2)
    for plan in PLANS:
        kind = "server" if plan.keeps_loads else "process for each run"
        name = f"{plan.prompts} prompts × {plan.repeats} repeats, {kind}"
        for loss in LOSSES:
            _print(name, f"{loss:.0%}", simulate(plan, loss, rows=ROWS, count=count), count)
        one = simulate(plan, 0.05, rows=ROWS, count=count, losing=1)
        _print(name, "5%, one row of 18", one, count)


def _print(name: str, loss: str, found: Counter[str], count: int) -> None:
    shares = (f"{found[key] / count:.1%}" for key in ("failed", "passed", "undecided"))
    terminal.print_row(name, loss, *shares)


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("benches", nargs="?", type=int, default=2000, help="of each row, by default 2,000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
