"""Benches that are repeated until their speed-up is as precise as was asked for (``--precision``)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from ggufspec.analysis import arms, review
from ggufspec.measure.measuring import FIRST_LOOK
from interval_paths.core import Scenario, make_bench, simulate_arms
from interval_paths.paths import Outcome, Path, judge_row

MOST_REPEATS = 24  # in this simulation


def simulate(scenario: Scenario, precision: float, seed: int) -> Outcome:
    """Return what the speed-up says at the end; the bench is looked at after each repeat, from the eighth."""
    both, effects = simulate_arms(scenario, np.random.default_rng(seed))
    for repeats in range(FIRST_LOOK, MOST_REPEATS + 1):
        groups = arms.group(make_bench(scenario, [arm.up_to(repeats) for arm in both]))
        if not review.improvable(groups, [arm.spec for arm in groups], precision):
            break
    return judge_row(groups[1].judgement, scenario.true_log(effects))


def _path(scenario: Scenario, precision: float) -> Path:
    named = replace(scenario, repeats=MOST_REPEATS, name=f"until ±{precision:.1%}")
    title = named.title.replace(f"× {MOST_REPEATS}", f"× {FIRST_LOOK} or more")
    return Path(name=title, simulate=partial(simulate, named, precision))


_DESIGNS = [
    Scenario(prompts=8, repeats=MOST_REPEATS, load=load, own_processes=own, spread=spread)
    for own, load, spread in ((False, 0.01, 0.0), (False, 0.03, 0.0), (True, 0.01, 0.0), (False, 0.01, 0.06))
]

PATHS = tuple(_path(design, precision) for design in _DESIGNS for precision in (0.01, 0.02))
