#!/usr/bin/env python
"""Simulate complete bisections and count wrong verdicts; prints the table of docs/howto/bisect.md.

A wrong verdict names another version than the one that changed, claims a second change where there is one, or
claims a change where there is none.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import terminal

from ggufspec.tuning.bisect import BisectFinding, Trial, Verdict, choose_next

VERSIONS = 12
MOST_REPEATS = 28
DRIFT = 0.03  # of all builds together, from repeat to repeat
NOISE = (0.005, 0.01, 0.02)  # of one build's mean over the prompts, from repeat to repeat

Random = random.Random


def step(size: float) -> Callable[[Random], list[float]]:
    """Return histories that lose a share of their speed once, anywhere."""

    def draw(chance: Random) -> list[float]:
        place = chance.randint(1, VERSIONS - 1)
        return [0.0] * place + [math.log(1 - size)] * (VERSIONS - place)

    return draw


HISTORIES: dict[str, Callable[[Random], list[float]]] = {
    "no change": lambda _: [0.0] * VERSIONS,
    "one step of 3 %": step(0.03),
    "one step of 5 %": step(0.05),
    "one step of 10 %": step(0.10),
    "two steps of 2.5 %": lambda _: [0.0] * 3 + [math.log(0.975)] * 5 + [2 * math.log(0.975)] * 4,
    "10 % lost, half of it won back": lambda _: [0.0] * 5 + [math.log(0.9)] * 3 + [math.log(0.95)] * 4,
}


def bisect(history: Sequence[float], noise: float, chance: Random) -> tuple[Verdict, int]:
    """Return the verdict of a simulated bisection, and how many builds were measured for a repeat."""
    trials: list[Trial] = []
    runs = 0
    while True:
        step = choose_next(len(history), trials, frozenset(), most_repeats=MOST_REPEATS)
        if isinstance(step, Verdict):
            return step, runs
        if step.number == len(trials):
            trials.append(Trial(places=step.places, repeats=()))
        done = trials[step.number].repeats
        more = []
        for _ in range(step.repeats - len(done)):
            drift = chance.gauss(0, DRIFT)
            more.append(tuple(history[place] + drift + chance.gauss(0, noise) for place in step.places))
            runs += len(step.places)
        trials[step.number] = Trial(places=step.places, repeats=(*done, *more))


def judge(history: Sequence[float], verdict: Verdict) -> str:
    """Return ``right``, ``wrong`` or ``undecided``."""
    if verdict.finding in {BisectFinding.NO_DIFFERENCE, BisectFinding.UNDECIDED}:
        return "undecided" if history[0] != history[-1] else "right"
    changes = {place for place in range(1, len(history)) if history[place] != history[place - 1]}
    named = {verdict.step.second} if verdict.step else set()
    single = verdict.finding is BisectFinding.STEP
    return "right" if changes and named <= changes and (len(changes) == 1) is single else "wrong"


def simulate(name: str, noise: float, count: int, seed: int = 1) -> tuple[Counter[str], float]:
    """Return how many verdicts are right, wrong and undecided, and the mean number of measurements."""
    chance = Random(f"{seed}/{name}/{noise}")
    counts: Counter[str] = Counter()
    total = 0
    for _ in range(count):
        history = HISTORIES[name](chance)
        verdict, runs = bisect(history, noise, chance)
        counts[judge(history, verdict)] += 1
        total += runs
    return counts, total / count


def main() -> None:
    """Print a table."""
    count: int = _arguments().bisections
    terminal.print_head("history", "noise", "right", "wrong", "undecided", "measurements")
    for name in HISTORIES:
        for noise in NOISE:
            counts, runs = simulate(name, noise, count)
            shares = (f"{counts[key] / count:.1%}" for key in ("right", "wrong", "undecided"))
            terminal.print_row(name, f"{noise:.1%}", *shares, f"{runs:.0f}")


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("bisections", nargs="?", type=int, default=1000, help="of each row, by default 1,000")
    return parser.parse_args()


if __name__ == "__main__":
    main()
