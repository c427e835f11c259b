"""Benches of one target and one arm that drafts, in every design: speed-up and tokens/s.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.analysis import arms
from ggufspec.results import ResultSet
from interval_paths import stored
from interval_paths.paths import Outcome, Path, judge, judge_row
from interval_paths.stored import SimulatedArm, Table

TRUTH = 1.5  # speed-up
DESIGNS = ((8, 3), (8, 5), (32, 3), (4, 3))  # prompts × loads
LOADS = (0.0, 0.01, 0.03)
SPREADS = (0.0, 0.06)
_SLOWEST = 50.0  # tokens/s of the target


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
        slow: share of the runs that take 30 % longer, beside those of every scenario.
        truth: the speed-up.
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
    slow: float = 0.0
    truth: float = TRUTH
    name: str = ""

    @property
    def title(self) -> str:
        """The name of its row."""
        kind = "own processes" if self.own_processes else f"loads differ by {self.load:.1%}"
        parts = [f"{self.prompts} × {self.repeats}", kind, f"prompts by {self.spread:.0%}"]
        return ", ".join([*parts, *([self.name] if self.name else [])])

    def true_log(self, effects: Table) -> float:
        """Return the true log speed-up over prompts of this kind; of a single prompt, its own.

        Args:
            effects: by which the log speed-up of each prompt differs from the mean.
        """
        return math.log(self.truth) + (float(effects[0]) if self.prompts == 1 else 0.0)


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what the speed-up of one bench says."""
    simulated, effects = simulate_arms(scenario, np.random.default_rng(seed))
    return judge_row(arms.group(make_bench(scenario, simulated))[1].judgement, scenario.true_log(effects))


def make_bench(scenario: Scenario, simulated: list[SimulatedArm], **facts: Any) -> ResultSet:
    """Return the stored bench of some arms; ``facts`` are fields of ``Meta``."""
    return stored.bench(simulated, engine="binary" if scenario.own_processes else "server", **facts)


def simulate_rate(scenario: Scenario, seed: int) -> Outcome:
    """Return what the tokens/s of the target say; the true value is the mean of many benches."""
    simulated, _ = simulate_arms(scenario, np.random.default_rng(seed))
    rate = arms.group(make_bench(scenario, simulated))[0].rate
    return judge(rate, None, math.log(_SLOWEST) - _MEAN_EXCESS)


_MEAN_EXCESS = 0.0192 + 0.02 * 0.1317
"""Of the logarithm of a run time: E ln(1 + Γ(1.5) 0.02 / 1.5), and E ln(1 + U(0, 0.3)) of every fiftieth."""


def simulate_arms(scenario: Scenario, random: np.random.Generator) -> tuple[list[SimulatedArm], Table]:
    """Return the target, an arm that drafts, and by how much each prompt's log speed-up differs."""
    prompts, repeats = scenario.prompts, scenario.repeats
    logs = run_times(random, scenario)
    conversation = np.arange(prompts) // scenario.turns
    effects = random.normal(0, scenario.spread, prompts)[conversation]
    effects = effects + random.normal(0, scenario.turn_spread, prompts)
    hardness = random.normal(0, 0.1, (prompts, 1))  # slows both arms
    arm = math.log(_SLOWEST * scenario.truth) + effects[:, None] + hardness - logs[0]
    target = math.log(_SLOWEST) + hardness - logs[1]
    arm[random.random(arm.shape) < scenario.missing] = np.nan
    loads = np.tile(np.arange(repeats), (prompts, 1))
    specs = stored.target_alone(), stored.drafting()
    names = (
        [
            f"c{number}#{place % scenario.turns + 1}" if place % scenario.turns else f"c{number}"
            for place, number in enumerate(conversation.tolist())
        ]
        if scenario.turns > 1
        else None
    )
    simulated = [
        SimulatedArm(
            spec=spec,
            tps=np.exp(table),
            loads=None if scenario.own_processes else loads + repeats * number,
            prompts=names,
        )
        for number, (spec, table) in enumerate(zip(specs, (target, arm), strict=True))
    ]
    return simulated, effects


def run_times(random: np.random.Generator, scenario: Scenario) -> Table:
    """Return logarithms of relative run times, shape (2 arms, prompts, repeats)."""
    order = positions(random, scenario)
    excess = 1 + random.gamma(1.5, 0.02 / 1.5, order.shape)
    slow = np.where(random.random(order.shape) < 0.02, 1 + random.uniform(0, 0.3, order.shape), 1.0)
    if scenario.slow:
        slow = slow * np.where(random.random(order.shape) < scenario.slow, 1.3, 1.0)
    shape = order.shape if scenario.own_processes else (2, 1, scenario.repeats)
    loads = random.normal(0, scenario.load, shape)
    noise = random.normal(0, 0.005, order.shape)
    return np.asarray(np.log(excess * slow) + _machine(random, scenario)[order] + loads + noise)


def _machine(random: np.random.Generator, scenario: Scenario) -> Table:
    """Return how much slower the machine is at each run, in logarithms."""
    runs = 2 * scenario.prompts * scenario.repeats
    _, *steps = random.normal(0, 0.02 * math.sqrt(1 - scenario.phi**2), runs).tolist()
    slower = (
        make_drift(float(random.normal(0, 0.02)), steps, scenario.phi)
        + scenario.trend * np.arange(runs) / runs
    )
    for _ in range(scenario.bursts):
        first = int(random.integers(0, max(runs - 6, 1)))
        slower[first : first + 6] += 0.1
    return slower


def make_drift(first: float, steps: Iterable[float], phi: float) -> Table:
    """Return a first-order autoregressive series: each value is ``phi`` of the last one and a step."""
    drift = [first]
    for step in steps:
        drift.append(phi * drift[-1] + step)
    return np.array(drift)


def positions(random: np.random.Generator, scenario: Scenario) -> NDArray[np.int64]:
    """Return when each run is made, shape (2 arms, prompts, repeats)."""
    prompts, repeats = scenario.prompts, scenario.repeats
    position = np.stack([random.permutation(prompts) for _ in range(repeats)], axis=1)
    if scenario.own_processes:
        pair = 2 * (np.arange(repeats) * prompts + position)
        first = random.integers(0, 2, pair.shape)
        return np.stack((pair + first, pair + 1 - first))
    first = random.integers(0, 2, (1, repeats))
    starts = [(2 * np.arange(repeats) + turn) * prompts for turn in (first, 1 - first)]
    return np.stack([start + position for start in starts])


_SHARED = [
    Scenario(prompts=prompts, repeats=loads, spread=spread, load=load)
    for prompts, loads in (*DESIGNS, (8, 10))
    for spread in SPREADS
    for load in LOADS
]
_SPECIAL = [
    Scenario(
        prompts=turns * conversations,
        repeats=3,
        turns=turns,
        spread=spread,
        turn_spread=0.03,
        load=0.02,
        name=f"{conversations} conversations of {turns} turns",
    )
    for conversations, turns in ((8, 4), (5, 3))
    for spread in SPREADS
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
_OWN = [
    Scenario(prompts=prompts, repeats=repeats, spread=spread, load=0.01, own_processes=True)
    for prompts, repeats in (*DESIGNS, (30, 1), (1, 10), (1, 3))
    for spread in SPREADS
]
_EQUAL = [
    replace(scenario, truth=1.0, name="A/A")
    for scenario in (_SHARED[1], _SHARED[2], _SHARED[7], _SHARED[8], _OWN[2])
]
_POWER = [
    Scenario(prompts=8, repeats=5, load=0.01, truth=1.05, name="true 1.05"),
    Scenario(prompts=8, repeats=5, load=0.01, truth=1.05, own_processes=True, name="true 1.05"),
]
_RATES = [
    Scenario(prompts=8, repeats=5, load=load, own_processes=own, phi=phi, name=f"tokens/s, φ = {phi:g}")
    for own, load in ((True, 0.0), (False, 0.01), (False, 0.03))
    for phi in (0.9, 0.0)
]


def path(scenario: Scenario, simulate_one: Callable[[Scenario, int], Outcome], **goals: float) -> Path:
    """Return the path of a scenario."""
    return Path(name=scenario.title, simulate=partial(simulate_one, scenario), **goals)


PATHS = (
    *(path(scenario, simulate) for scenario in (*_SHARED, *_SPECIAL, *_OWN, *_EQUAL)),
    *(path(scenario, simulate, least_found=0.9) for scenario in _POWER),
    *(path(scenario, simulate_rate) for scenario in _RATES),
)
