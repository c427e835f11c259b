"""Check by simulation that 95 % intervals contain the true value, and A/A comparisons find nothing.

    python scripts/validate_intervals.py

Simulates benches whose true speed-up is known and asks `ggufspec.stats` for it; needs no llama.cpp. Fails if
the interval of the speed-up contains the true value in less than 93 % of 2,000 benches of any scenario.
Verdict and interval are one procedure, so rows in which prompts do not differ are A/A comparisons too: what
is missing from 100 % there is the share of differences found between equal arms. "Known" is the half width
that a 95 % interval would have if all variances were known. Scenarios below the line are printed without a
goal; docs/statistics.md says why. Takes some minutes on one core.

Noise: run times have an excess of 2 % on average, skewed to the right; every fiftieth run is slower by up to
another 30 %; the machine drifts slowly (AR(1) from run to run, φ = 0.9, standard deviation 2 %), and 0.5 % is
independent. Each load makes all its runs faster or slower by a random factor ("loads differ by").

- Shared loads (servers, GPUs, the in-process engine): for each repeat both arms are loaded anew, in random
  order, and measure all prompts one after the other.
- Own processes (llama.cpp's programs): the two arms of a prompt run side by side in random order, and each
  run is a load.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats

TRIALS = 2000
TRUTH = 1.5  # speed-up
LOWEST = 0.93
DESIGNS = ((8, 3), (8, 5), (12, 3), (32, 3), (5, 3), (4, 3))  # prompts × loads
LOADS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03)
SPREADS = (0.0, 0.06)
SEED = 4

Table = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of bench; standard deviations are of logarithms.

    Attributes:
        prompts: number of prompts, those of all conversations together.
        repeats: of each prompt; with shared loads also the number of loads of each arm.
        spread: by how much the speed-up differs from prompt to prompt (conversation to conversation).
        load: by how much loads of one arm differ.
        own_processes: whether each run is a load.
        turns: of a conversation; 1 for prompts that stand alone.
        turn_spread: by how much the speed-up differs from turn to turn of a conversation.
        phi: correlation of the machine's drift from run to run.
        trend: how much slower the machine is at the end than at the start.
        bursts: how many times another program slows six runs in a row by a tenth.
        missing: share of the cells that are missing.
        name: what is special about it.
    """

    prompts: int
    repeats: int
    spread: float = 0.0
    load: float = 0.0
    own_processes: bool = False
    turns: int = 1
    turn_spread: float = 0.0
    phi: float = 0.9
    trend: float = 0.0
    bursts: int = 0
    missing: float = 0.0
    name: str = ""


SHARED = [
    Scenario(prompts=prompts, repeats=loads, spread=spread, load=load)
    for prompts, loads in DESIGNS
    for spread in SPREADS
    for load in LOADS
]
SPECIAL = [
    Scenario(
        prompts=turns * conversations,
        repeats=3,
        turns=turns,
        spread=spread,
        turn_spread=0.03,
        load=load,
        name=f"{conversations} conversations of {turns} turns",
    )
    for conversations, turns in ((8, 4), (5, 3))
    for spread in SPREADS
    for load in (0.0, 0.02)
] + [
    Scenario(prompts=8, repeats=repeats, load=0.01, name=name, **special)
    for repeats in (3, 5)
    for name, special in (
        ("10 % slower at the end", {"trend": 0.1}),
        ("three bursts", {"bursts": 3}),
        ("no slow drift", {"phi": 0.0}),
        ("a tenth of the cells missing", {"missing": 0.1, "spread": 0.06}),
    )
]
OWN = [
    Scenario(prompts=prompts, repeats=repeats, spread=spread, load=0.01, own_processes=True)
    for prompts, repeats in (*DESIGNS, (30, 1), (1, 10), (1, 3))
    for spread in SPREADS
]


def main() -> None:
    started = time.process_time()
    line("prompts × loads", "prompts differ by", "loads differ by", "holds", "half width", "known")
    line(*["---"] * 6)
    passed = [row(scenario) for scenario in (*SHARED, *SPECIAL)]
    line("*own processes*")
    passed += [row(scenario) for scenario in OWN]
    line("*no goal*")
    for scenario in (replace(OWN[2], load=0.0), replace(OWN[2], load=0.0, phi=0.0)):
        share, half = tokens_per_second(scenario)
        line(f"8 × 5, tokens/s, φ = {scenario.phi:g}", "0%", "0.0%", f"{share:.1%}", f"±{half:.1%}")
    line("8 × 3 and on until ±1%", "0%", "1.0%", f"{stopped(0.01):.1%}")
    line("acceptance rate, 8 prompts", "", "", f"{acceptance(8):.1%}")
    line("acceptance rate, 32 prompts", "", "", f"{acceptance(32):.1%}")
    seconds = time.process_time() - started
    print(f"\n{TRIALS} benches a row, {seconds:.0f} s of processor time")
    print("passed" if all(passed) else "FAILED")
    sys.exit(not all(passed))


def line(*texts: str) -> None:
    print(f"| {' | '.join((*texts, *[''] * (6 - len(texts))))} |", flush=True)


def row(scenario: Scenario) -> bool:
    """Print one scenario; return whether its intervals hold often enough."""
    hits, halves, errors = 0, [], []
    for arm, target, truth in benches(scenario):
        effect = stats.paired_effect(arm, target)
        assert effect is not None
        half = effect.fit.half_width()
        assert half is not None
        errors.append(effect.fit.mean - truth)
        hits += abs(errors[-1]) <= half
        halves.append(half)
    share, known = hits / TRIALS, stats.Z95 * float(np.std(errors))
    size = f"{scenario.prompts} × {scenario.repeats}"
    line(
        f"{size}, {scenario.name}" if scenario.name else size,
        f"{scenario.spread:.0%}",
        f"{scenario.load:.1%}",
        f"{share:.1%}",
        f"±{np.mean(halves):.1%}",
        f"±{known:.1%}",
    )
    return share >= LOWEST


def tokens_per_second(scenario: Scenario) -> tuple[float, float]:
    """Return how often the interval of tokens/s holds the mean over all benches, and its mean half width."""
    estimates = [stats.mean_rate(target) for _, target, _ in benches(scenario)]
    values = [estimate for estimate in estimates if estimate is not None]
    truth = math.exp(np.mean([math.log(estimate.value) for estimate in values]))
    halves = [estimate.relative_half_width or 0.0 for estimate in values]
    return holds(values, truth), float(np.mean(halves))


def stopped(precision: float) -> float:
    """Return how often the interval holds when repeats are added, up to 20, until it is narrow enough."""
    hits = 0
    for arm, target, truth in benches(Scenario(prompts=8, repeats=20, load=0.01)):
        for repeats in range(3, 21):
            effect = stats.paired_effect(arm.where(np.arange(20) < repeats), target)
            assert effect is not None
            if (effect.ratio.relative_half_width or 0.0) <= precision:
                break
        assert effect is not None
        hits += abs(effect.fit.mean - truth) <= (effect.fit.half_width() or 0.0)
    return hits / TRIALS


def acceptance(prompts: int) -> float:
    """Return how often the interval of a pooled acceptance rate holds; prompts have rates and lengths."""
    random = np.random.default_rng([SEED, prompts, 1])
    drafted = random.integers(60, 240, (TRIALS, prompts))
    rates = random.beta(8, 3, (TRIALS, prompts))
    accepted = random.binomial(drafted, rates)
    names = [f"p{prompt}" for prompt in range(prompts)]
    estimates = [
        stats.ratio_of_sums(
            dict(zip(names, of_accepted, strict=True)), dict(zip(names, of_drafted, strict=True))
        )
        for of_accepted, of_drafted in zip(accepted.tolist(), drafted.tolist(), strict=True)
    ]
    return holds((estimate for estimate in estimates if estimate is not None), 8 / 11)


def holds(estimates: Iterable[stats.Estimate], truth: float) -> float:
    hits = [(one.lo or 0.0) <= truth <= (one.hi or 0.0) for one in estimates]
    return sum(hits) / TRIALS


def benches(scenario: Scenario) -> Iterator[tuple[stats.Rates, stats.Rates, float]]:
    """Yield both arms' rates and the true log speed-up: over all prompts, or that of a single prompt."""
    prompts, repeats = scenario.prompts, scenario.repeats
    random = np.random.default_rng(
        [SEED, prompts, repeats, round(1000 * scenario.spread), round(1000 * scenario.load), scenario.turns]
    )
    logs = run_times(random, scenario)
    conversation = np.arange(prompts) // scenario.turns
    effects = random.normal(0, scenario.spread, (TRIALS, prompts))[:, conversation]
    effects = effects + random.normal(0, scenario.turn_spread, (TRIALS, prompts))
    hardness = random.normal(0, 0.1, (TRIALS, prompts, 1))  # slows both arms
    arm = math.log(50 * TRUTH) + effects[:, :, None] + hardness - logs[:, 0]
    target = math.log(50) + hardness - logs[:, 1]
    arm[random.random(arm.shape) < scenario.missing] = np.nan
    names, columns = [f"p{prompt:03}" for prompt in range(prompts)], list(range(repeats))
    loads = None if scenario.own_processes else np.tile(np.arange(float(repeats)), (prompts, 1))
    conversations = (
        {name: f"c{number}" for name, number in zip(names, conversation, strict=True)}
        if scenario.turns > 1
        else None
    )
    for trial in range(TRIALS):
        truth = math.log(TRUTH) + (float(effects[trial, 0]) if prompts == 1 else 0.0)
        yield (
            stats.Rates(names, columns, np.exp(arm[trial]), loads=loads, conversations=conversations),
            stats.Rates(names, columns, np.exp(target[trial]), loads=loads, conversations=conversations),
            truth,
        )


def run_times(random: np.random.Generator, scenario: Scenario) -> Table:
    """Return logarithms of relative run times, shape (trials, 2 arms, prompts, repeats)."""
    order = places(random, scenario)
    in_time = np.take_along_axis(machine(random, scenario), order.reshape(TRIALS, -1), axis=1)
    excess = 1 + random.gamma(1.5, 0.02 / 1.5, order.shape)
    slow = np.where(random.random(order.shape) < 0.02, 1 + random.uniform(0, 0.3, order.shape), 1.0)
    loads = random.normal(0, scenario.load, (TRIALS, 2, 1, scenario.repeats))
    if scenario.own_processes:
        loads = random.normal(0, scenario.load, order.shape)
    noise = random.normal(0, 0.005, order.shape)
    return np.asarray(np.log(excess * slow) + in_time.reshape(order.shape) + loads + noise)


def machine(random: np.random.Generator, scenario: Scenario) -> Table:
    """Return how much slower the machine is at each run, in logarithms, shape (trials, runs)."""
    runs = 2 * scenario.prompts * scenario.repeats
    drift = np.empty((TRIALS, runs))
    drift[:, 0] = random.normal(0, 0.02, TRIALS)
    for run in range(1, runs):
        step = random.normal(0, 0.02 * math.sqrt(1 - scenario.phi**2), TRIALS)
        drift[:, run] = scenario.phi * drift[:, run - 1] + step
    for _ in range(scenario.bursts):
        first = random.integers(0, max(runs - 6, 1), (TRIALS, 1))
        drift += 0.1 * ((np.arange(runs) >= first) & (np.arange(runs) < first + 6))
    return drift + scenario.trend * np.arange(runs) / runs


def places(random: np.random.Generator, scenario: Scenario) -> NDArray[np.int64]:
    """Return when each run is made, shape (trials, 2 arms, prompts, repeats)."""
    prompts, repeats = scenario.prompts, scenario.repeats
    place = random.permuted(np.tile(np.arange(prompts), (TRIALS, repeats, 1)), axis=2).swapaxes(1, 2)
    if scenario.own_processes:
        pair = 2 * (np.arange(repeats) * prompts + place)
        first = random.integers(0, 2, pair.shape)
        return np.stack((pair + first, pair + 1 - first), axis=1)
    first = random.integers(0, 2, (TRIALS, 1, repeats))
    starts = [(2 * np.arange(repeats) + turn) * prompts for turn in (first, 1 - first)]
    return np.stack([start + place for start in starts], axis=1)


if __name__ == "__main__":
    main()
