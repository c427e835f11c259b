"""Sweeps of many draft sizes with one target: what is said of the best one.

All arms draft, and each has loads of its own. The best one is what the sentence of a bench names: its
interval must contain its true speed-up, and it may not be called faster where it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from ggufspec.analysis import arms, rank
from ggufspec.domain import Role
from ggufspec.stats import family_quantile
from interval_paths import stored
from interval_paths.paths import Outcome, Path, judge
from interval_paths.stored import SimulatedArm


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of sweep: the true speed-ups, and by how much loads and prompts differ."""

    name: str
    truths: tuple[float, ...]
    repeats: int = 5
    prompts: int = 8
    load: float = 0.01
    spread: float = 0.0


def simulate_arms(scenario: Scenario, random: np.random.Generator) -> list[SimulatedArm]:
    """Return the target alone, and an arm for each speed-up, the first at γ = 1."""
    shape = scenario.prompts, scenario.repeats
    drift = random.normal(0, 0.02, (1, scenario.repeats))
    hardness = random.normal(0, 0.1, (scenario.prompts, 1))
    simulated = []
    for number, truth in enumerate((1.0, *scenario.truths)):
        own = random.normal(0, scenario.spread if number else 0.0, (scenario.prompts, 1))
        excess = np.log1p(random.gamma(1.5, 0.02 / 1.5, shape)) + random.normal(0, 0.005, shape)
        slow = np.where(random.random(shape) < 0.02, np.log1p(random.uniform(0, 0.3, shape)), 0.0)
        loads = random.normal(0, scenario.load, (1, scenario.repeats))
        simulated.append(
            SimulatedArm(
                spec=stored.drafting(number) if number else stored.target_alone(),
                tps=50 * truth * np.exp(own + hardness + drift + loads - excess - slow),
                loads=np.tile(np.arange(scenario.repeats), (scenario.prompts, 1)) + 1000 * number,
            )
        )
    return simulated


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what one sweep says of its best arm."""
    groups = arms.group(stored.bench(simulate_arms(scenario, np.random.default_rng(seed))))
    ranking = rank([(arm, arm.judgement) for arm in groups if arm.role is Role.DRAFTING and arm.judgement])
    assert ranking.best is not None
    assert ranking.best.draft_size is not None
    assert ranking.judgement is not None
    truth = math.log(scenario.truths[ranking.best.draft_size - 1])
    outcome = judge(ranking.judgement.ratio, ranking.judgement.verdict, truth)
    return Outcome(
        holds=outcome.holds,
        false_verdict=outcome.false_verdict,
        decided=outcome.decided,
        half_width=outcome.half_width,
        known_half_width=family_quantile(len(scenario.truths), 1e6) * _error(scenario),
    )


def _error(scenario: Scenario) -> float:
    """Return the standard error of a log speed-up, from the variances that the simulation has."""
    run = 2 * (0.000264 + 0.005**2 + 0.02 * 0.0225)  # of both arms: excess, noise, and slow runs
    of_runs = run / (scenario.prompts * scenario.repeats)
    return math.sqrt(
        scenario.spread**2 / scenario.prompts + 2 * scenario.load**2 / scenario.repeats + of_runs
    )


_EQUAL = [
    Scenario(name=f"many arms: {count} equal, loads {load:.0%}", truths=(1.0,) * count, load=load)
    for count in (4, 8, 20)
    for load in (0.01, 0.02)
] + [
    Scenario(name="many arms: 20 equal, prompts 6 %", truths=(1.0,) * 20, spread=0.06),
    Scenario(name="many arms: 20 equal, 3 loads", truths=(1.0,) * 20, repeats=3),
]
_BETTER = [
    Scenario(name="many arms: 20 from 0.9 to 1.05", truths=tuple(np.linspace(0.9, 1.05, 20).tolist())),
    Scenario(name="many arms: 8, one of them 1.05", truths=(*(1.0,) * 7, 1.05)),
]

PATHS = (
    *(Path(name=scenario.name, simulate=partial(simulate, scenario), widest=1.35) for scenario in _EQUAL),
    *(
        Path(name=scenario.name, simulate=partial(simulate, scenario), least_found=0.9)
        for scenario in _BETTER
    ),
)
