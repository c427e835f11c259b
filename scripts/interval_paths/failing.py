"""Benches whose runs fail: a time limit that cuts the slow runs of one arm, and failures of both alike.

The noise is that of ``core``. A run counts as slow by its time over that of its prompt's other runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ggufspec.analysis import arms
from ggufspec.domain import Status
from interval_paths.core import Scenario, make_bench, simulate_arms
from interval_paths.paths import Outcome, Path, judge_row
from interval_paths.stored import SimulatedArm


@dataclass(frozen=True, kw_only=True)
class Failing:
    """Which runs fail.

    Attributes:
        slowest: the share of the target's runs that a time limit cuts, the slowest ones.
        any_run: the share of both arms' runs that fail whatever they measure.
    """

    slowest: float = 0.0
    any_run: float = 0.0


def simulate(scenario: Scenario, failing: Failing, seed: int) -> Outcome:
    """Return what the speed-up of one bench says."""
    random = np.random.default_rng(seed)
    (target, arm), effects = simulate_arms(scenario, random)
    cut = _cut_slowest(target, failing.slowest)
    both = [_fail_any(one, failing.any_run, random) for one in (cut, arm)]
    return judge_row(arms.group(make_bench(scenario, both))[1].judgement, scenario.true_log(effects))


def _cut_slowest(arm: SimulatedArm, share: float) -> SimulatedArm:
    """Return an arm whose slowest runs timed out."""
    logs = np.log(arm.tps)
    apart = logs - np.median(logs, axis=1, keepdims=True)
    slowest = np.argsort(apart, axis=None)[: round(share * apart.size)]
    places = zip(*np.unravel_index(slowest, apart.shape), strict=True)
    return _fail(arm, {(int(p), int(r)): Status.TIMED_OUT for p, r in places})


def _fail_any(arm: SimulatedArm, share: float, random: np.random.Generator) -> SimulatedArm:
    places = zip(*np.nonzero(random.random(arm.tps.shape) < share), strict=True)
    return _fail(arm, {(int(p), int(r)): Status.CRASHED for p, r in places})


def _fail(arm: SimulatedArm, statuses: dict[tuple[int, int], Status]) -> SimulatedArm:
    return replace(arm, statuses={**(arm.statuses or {}), **statuses})


_DESIGNS = [Scenario(prompts=8, repeats=5, load=0.01, own_processes=own, truth=1.0) for own in (False, True)]


def _path(scenario: Scenario, failing: Failing, name: str) -> Path:
    return Path(name=replace(scenario, name=name).title, simulate=partial(simulate, scenario, failing))


PATHS = (
    *(
        _path(design, Failing(slowest=share), f"limit cuts {share:.1%} of one arm, A/A")
        for design in _DESIGNS
        for share in (0.025, 0.05, 0.1, 0.2)
    ),
    *(_path(design, Failing(any_run=0.05), "5.0% of both arms fail, A/A") for design in _DESIGNS),
)
