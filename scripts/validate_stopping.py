"""Simulate benches that are measured until their verdicts are decided (`bench --until decided`).

    python scripts/validate_stopping.py [BENCHES]

Each row simulates benches (300 by default) whose true speed-ups are known, and asks `ggufspec.stats` at each
look as a bench does; needs no llama.cpp. A stop is wrong if a verdict is: faster or slower with the wrong
sign, or the same within 1 % where the truth is not. Fails if more than 5 % of the benches of a row end with a
wrong verdict.

"Fixed" is the design with a single look that decides as many benches of the row: so many repeats would have
to be chosen beforehand, by somebody who knows the truth. Fails also if the rows whose arms all differ by 2 %
or more take more repeats on average than these designs.

Noise, as in validate_intervals.py: run times have an excess of 2 % on average, skewed to the right; every
fiftieth run is slower by up to another 30 %; each load makes all runs of an arm in a repeat faster or slower
by 1 % (standard deviation); the machine drifts from repeat to repeat by 3 %. Prompts differ by 6 %.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import terminal
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.analysis import judge_ratio
from ggufspec.domain import SpeedVerdict
from ggufspec.stats import StoppingRule
from ggufspec.units import counted

BENCHES = 300
MOST_REPEATS = 20
MOST_WRONG = 0.05
CLEAR = math.log(1.02)
PROMPTS = 8
SEED = 20

Table = NDArray[np.float64]
Truths = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of bench: the true speed-up of each drafting arm, and the share of cells that are missing."""

    truths: Truths
    prompts: int = PROMPTS
    load: float = 0.01
    missing: float = 0.0

    def __str__(self) -> str:
        arms = ", ".join(f"{truth:g}" for truth in self.truths)
        special = [counted(self.prompts, "prompt")] if self.prompts != PROMPTS else []
        special += [f"loads {self.load:.0%}"] if self.load != 0.01 else []
        special += [f"{self.missing:.0%} missing"] if self.missing else []
        return "; ".join((arms, *special))

    @property
    def is_clear(self) -> bool:
        """Whether every arm is faster or slower by 2 % at least."""
        return all(abs(math.log(truth)) >= CLEAR * 0.999 for truth in self.truths)


SCENARIOS = (
    Scenario(truths=(1.0,)),
    Scenario(truths=(1.0, 1.0, 1.0, 1.0)),
    Scenario(truths=(1.0,), prompts=1),
    Scenario(truths=(1.0,), load=0.0),
    Scenario(truths=(1.0,), missing=0.1),
    Scenario(truths=(1.009,)),
    Scenario(truths=(1.011,)),
    Scenario(truths=(1.02,)),
    Scenario(truths=(0.95, 1.05)),
    Scenario(truths=(1.05,), missing=0.1),
    Scenario(truths=(1.1, 1.3, 1.5)),
    Scenario(truths=(1.5,)),
    Scenario(truths=(0.8, 1.0, 1.2)),
)


def simulate(scenario: Scenario, chance: np.random.Generator) -> tuple[stats.Rates, list[stats.Rates]]:
    """Return tokens/s of the target alone and of each drafting arm in one bench of the most repeats."""
    shape = (scenario.prompts, MOST_REPEATS)
    prompts = [f"p{place:03}" for place in range(scenario.prompts)]
    drift = chance.normal(0, 0.03, MOST_REPEATS)

    def measure(true_logs: Table) -> stats.Rates:
        excess = chance.exponential(0.02, shape)
        slow = chance.random(shape) < 0.02
        seconds = np.log1p(excess + slow * chance.uniform(0, 0.3, shape))
        load = chance.normal(0, scenario.load, MOST_REPEATS)
        rates = np.exp(3 + true_logs[:, None] + drift + load - seconds)
        present = chance.random(shape) >= scenario.missing
        return stats.Rates(prompts, range(MOST_REPEATS), np.where(present, rates, np.nan))

    alone = measure(np.zeros(scenario.prompts))
    arms = []
    for truth in scenario.truths:
        apart = chance.normal(0, 0.06, scenario.prompts)
        arms.append(measure(math.log(truth) + apart - apart.mean()))
    return alone, arms


def judge(
    alone: stats.Rates, arms: Sequence[stats.Rates], repeats: int, rule: StoppingRule
) -> Iterator[SpeedVerdict]:
    """Yield the verdict of each arm after some repeats."""
    seen = np.arange(MOST_REPEATS) < repeats
    for arm in arms:
        effect = stats.fixed_effect(arm.where(seen), alone.where(seen), tests=rule.tests)
        yield judge_ratio(None if effect is None else effect.ratio)


def is_wrong(verdict: SpeedVerdict, truth: float) -> bool:
    """Return whether a verdict contradicts the true speed-up."""
    match verdict:
        case SpeedVerdict.FASTER:
            return truth <= 1
        case SpeedVerdict.SLOWER:
            return truth >= 1
        case SpeedVerdict.SAME:
            return abs(math.log(truth)) > math.log(1.01)
    return False


def is_sure(verdicts: Sequence[SpeedVerdict]) -> bool:
    """Return whether every verdict is decided."""
    return SpeedVerdict.UNDECIDED not in verdicts


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the benches of a row came to: shares of them, and after how many repeats they ended.

    ``fixed`` is the share that is decided by a single look after so many repeats.
    """

    wrong: float
    decided: float
    repeats: float
    fixed: dict[int, float]


def run(scenario: Scenario, count: int, seed: int) -> Outcome:
    """Return the outcome of so many benches."""
    chance = np.random.default_rng([SEED, seed])
    rule = StoppingRule(least_repeats=1, most_repeats=MOST_REPEATS, comparisons=len(scenario.truths))
    wrong = decided = total = 0
    fixed = dict.fromkeys(range(rule.looks[0], MOST_REPEATS + 1), 0)
    for _ in range(count):
        alone, arms = simulate(scenario, chance)
        for look in rule.looks:
            verdicts = [*judge(alone, arms, look, rule)]
            if is_sure(verdicts):
                break
        wrong += any(map(is_wrong, verdicts, scenario.truths))
        decided += is_sure(verdicts)
        total += look
        for repeats in fixed:
            once = StoppingRule(least_repeats=repeats, most_repeats=repeats, comparisons=len(scenario.truths))
            fixed[repeats] += is_sure([*judge(alone, arms, repeats, once)])
    return Outcome(
        wrong=wrong / count,
        decided=decided / count,
        repeats=total / count,
        fixed={repeats: sure / count for repeats, sure in fixed.items()},
    )


def smallest(fixed: dict[int, float], decided: float) -> int:
    """Return the smallest fixed number of repeats that decides as large a share; the most if none does."""
    return next((repeats for repeats, share in fixed.items() if share >= decided), MOST_REPEATS)


def main() -> int:
    """Print a table, and return 1 if a goal is missed."""
    count: int = _arguments().benches
    terminal.print_head("true speed-ups", "wrong", "decided", "repeats", "fixed")
    most_wrong = 0.0
    clear: list[tuple[float, int]] = []
    for place, scenario in enumerate(SCENARIOS):
        outcome = run(scenario, count, place)
        fixed = smallest(outcome.fixed, outcome.decided)
        most_wrong = max(most_wrong, outcome.wrong)
        clear += [(outcome.repeats, fixed)] if scenario.is_clear else []
        shares = f"{outcome.wrong:.1%}", f"{outcome.decided:.1%}"
        terminal.print_row(scenario, *shares, f"{outcome.repeats:.1f}", fixed)
    repeats, fixed_repeats = (float(np.mean(column)) for column in zip(*clear, strict=True))
    print(f"\nrows with clear differences: {repeats:.1f} repeats on average; fixed: {fixed_repeats:.1f}")
    return int(most_wrong > MOST_WRONG or repeats > fixed_repeats)


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("benches", nargs="?", type=int, default=BENCHES, help="of each row, by default 300")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
