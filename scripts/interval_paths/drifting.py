"""Drift of the machine, from anchors: one configuration that is measured again every 24 runs.

The true drift is the trend alone. Noise is independent from run to run, or a slow wave (AR(1), φ = 0.9 from
run to run) that ends where it will. A warning is false where there is no trend of 3 %.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from ggufspec.analysis import MeasurementWarning, review
from ggufspec.domain import Estimate
from interval_paths import stored
from interval_paths.core import make_drift
from interval_paths.paths import Outcome, Path, judge
from interval_paths.stored import SimulatedArm

_EVERY = 24  # runs; see ``measure.runplan``
_PROMPTS = 8
_SD = 0.02
_LEAST = 0.03  # that is warned of


def simulate(repeats: int, phi: float, trend: float, seed: int) -> Outcome:
    """Return what one bench says of its drift.

    Args:
        repeats: of each prompt.
        phi: correlation of the noise from run to run.
        trend: how much slower the machine is at the end than at the start, a logarithm.
        seed: of the random numbers.
    """
    random = np.random.default_rng(seed)
    runs = 2 * _PROMPTS * repeats  # every second one is of an arm that drafts
    steps = random.normal(0, _SD * math.sqrt(1 - phi**2), runs - 1).tolist()
    wave = make_drift(float(random.normal(0, _SD)), steps, phi)
    slope = -trend / (runs - 1)
    logs = math.log(50) + wave + slope * np.arange(runs)
    started = np.arange(0.0, runs, 2).reshape(repeats, _PROMPTS).T
    measured = SimulatedArm(
        spec=stored.target_alone(),
        tps=np.exp(logs[::2].reshape(repeats, _PROMPTS).T),
        started_s=started,
        order=started,
    )
    again = np.arange(_EVERY, runs, _EVERY)
    noise = wave[again] if phi else random.normal(0, _SD, len(again))
    between = np.asarray(again[None, :] + 0.5, dtype=np.float64)
    anchors = replace(
        measured,
        tps=np.exp(math.log(50) + slope * again + noise)[None, :],
        prompts=["p000"],
        started_s=between,
        order=between,
        is_anchor=True,
    )
    bench = stored.bench([measured, anchors], engine="binary")
    moved = review.drift(bench)
    assert moved is not None
    ends = None if moved.lo is None or moved.hi is None else (1 + moved.lo, 1 + moved.hi)
    ratio = Estimate(value=1 + moved.value, lo=ends and ends[0], hi=ends and ends[1])
    warned = MeasurementWarning.DRIFT.value in review.warnings(bench)
    watched = max(float(started[0, -1]), float(between.max())) - float(started[0, 0])
    outcome = judge(ratio, None, slope * watched)
    return replace(
        outcome,
        false_verdict=warned if not trend else warned and moved.value > 0,
        decided=warned if trend > _LEAST else None,
    )


PATHS = tuple(
    Path(name=f"drift, 8 × {repeats}, {noise}, {trend:.0%} slower at the end", simulate=simulation)
    for repeats in (5, 8, 20)
    for noise, phi in (("independent noise", 0.0), ("a slow wave", 0.9))
    for trend in (0.0, 0.05)
    for simulation in (partial(simulate, repeats, phi, trend),)
)
