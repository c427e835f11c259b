"""Energy per token: what a GPU takes for a token of drafting, over that of the target alone.

Power differs by chance between loads, as speed does, and by 2 % from run to run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ggufspec.analysis import arms
from ggufspec.domain import Conditions
from interval_paths.core import Scenario, make_bench, path, simulate_arms
from interval_paths.paths import Outcome, judge
from interval_paths.stored import SimulatedArm

_POWER_W = 300.0
_RUN_SD = 0.02


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what the ratio of the energies of a token says: at the same power, one over the speed-up."""
    random = np.random.default_rng(seed)
    simulated, effects = simulate_arms(scenario, random)
    watched = [_watch(arm, scenario, random) for arm in simulated]
    energy = arms.group(make_bench(scenario, watched))[1].energy["GPU"]
    return judge(energy.ratio, None, -scenario.true_log(effects))


def _watch(arm: SimulatedArm, scenario: Scenario, random: np.random.Generator) -> SimulatedArm:
    """Return an arm whose energy was measured."""
    loads = random.normal(0, scenario.load, (1, scenario.repeats))
    runs = random.normal(0, _RUN_SD, arm.tps.shape)
    joules = _POWER_W * 100 / arm.tps * np.exp(loads + runs)
    return replace(
        arm, conditions={(p, r): Conditions(gpu_j=float(j)) for (p, r), j in np.ndenumerate(joules)}
    )


_DESIGNS = [
    Scenario(prompts=8, repeats=repeats, load=load, spread=spread, name="energy per token")
    for repeats in (3, 5)
    for load in (0.01, 0.03)
    for spread in (0.0, 0.06)
]

PATHS = tuple(path(scenario, simulate) for scenario in _DESIGNS)
