"""Simulate benches that are measured until their verdicts are decided (`bench --until decided`).

    python scripts/validate_stopping.py [BENCHES]

Each row simulates benches (1,000 by default) whose true speed-ups are known, and asks `ggufspec.stats` at
each look as a bench does; needs no llama.cpp. A stop is wrong if a verdict is: faster or slower with the
wrong sign, or the same within 1 % where the truth is not. Fails if more than 5 % of the benches of a row end
with a wrong verdict, or if benches take more repeats on average than a fixed design that decides as many.

"Fixed" is that design for one row: the number of repeats, chosen beforehand and looked at once, that decides
as many benches. Nobody knows the truth of a row beforehand, so the last line has one number for all rows.

Noise, as in validate_intervals.py: run times have an excess of 2 % on average, skewed to the right; every
fiftieth run is slower by up to another 30 %; each load makes all runs of an arm in a repeat faster or slower
by 1 % (standard deviation); the machine drifts from repeat to repeat by 3 %. Prompts differ by 6 %.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats
from ggufspec.stats import SpeedVerdict, StoppingRule

BENCHES = 1000
MOST_REPEATS = 20
MOST_WRONG = 0.05
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
        special = [f"{self.prompts} prompts"] if self.prompts != PROMPTS else []
        special += [f"loads {self.load:.0%}"] if self.load != 0.01 else []
        special += [f"{self.missing:.0%} missing"] if self.missing else []
        return "; ".join((arms, *special))


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
        effect = stats.sequential_effect(arm.where(seen), alone.where(seen), rule)
        yield SpeedVerdict.NONE if effect is None else effect.verdict


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
    return not {SpeedVerdict.UNCLEAR, SpeedVerdict.NONE} & {*verdicts}


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
    """Print a table, and return 1 if a goal is missed; the argument is the number of benches for a row."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else BENCHES
    print("| true speed-ups | wrong | decided | repeats | fixed |")
    print("|---|---:|---:|---:|---:|")
    outcomes = []
    for place, scenario in enumerate(SCENARIOS):
        outcome = run(scenario, count, place)
        outcomes.append(outcome)
        fixed = smallest(outcome.fixed, outcome.decided)
        print(
            f"| {scenario} | {outcome.wrong:.1%} | {outcome.decided:.1%} | {outcome.repeats:.1f} | {fixed} |",
            flush=True,
        )
    means = {
        repeats: float(np.mean([outcome.fixed[repeats] for outcome in outcomes]))
        for repeats in outcomes[0].fixed
    }
    repeats = float(np.mean([outcome.repeats for outcome in outcomes]))
    fixed = smallest(means, float(np.mean([outcome.decided for outcome in outcomes])))
    print(f"\nmean of all rows: {repeats:.1f} repeats; a fixed design that decides as many: {fixed}")
    return int(max(outcome.wrong for outcome in outcomes) > MOST_WRONG or repeats > fixed)


if __name__ == "__main__":
    sys.exit(main())
