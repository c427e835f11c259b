"""Benches that are measured until their verdicts are decided (``--until decided``), looked at as planned.

The noise is that of ``many_arms``. A bench ends at the first look at which every arm is decided. All its
intervals have to hold, and none of its verdicts may be false.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from ggufspec.analysis import arms, review
from ggufspec.domain import Role, StoppingRule
from interval_paths import many_arms, stored
from interval_paths.many_arms import Scenario
from interval_paths.paths import Outcome, Path, judge

MOST_REPEATS = 20


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what one bench says at its end."""
    simulated = many_arms.simulate_arms(scenario, np.random.default_rng(seed))
    rule = StoppingRule(least_repeats=1, most_repeats=MOST_REPEATS, comparisons=len(scenario.truths))
    for look in rule.looks:
        groups = arms.group(stored.bench([arm.up_to(look) for arm in simulated], stopping=rule))
        if review.is_decided(groups, [arm.spec for arm in groups]):
            break
    outcomes = [
        judge(arm.judgement.ratio, arm.judgement.verdict, math.log(scenario.truths[arm.draft_size - 1]))
        for arm in groups
        if arm.role is Role.DRAFTING and arm.judgement is not None and arm.draft_size is not None
    ]
    return Outcome(
        holds=all(outcome.holds for outcome in outcomes),
        false_verdict=any(outcome.false_verdict for outcome in outcomes),
        decided=all(outcome.decided for outcome in outcomes) if max(scenario.truths) > 1 else None,
        half_width=max(outcome.half_width or 0.0 for outcome in outcomes),
    )


_EQUAL = [
    Scenario(name=f"until decided, {count} equal, loads {load:.0%}", truths=(1.0,) * count, load=load)
    for count in (1, 4)
    for load in (0.01, 0.03)
]
_CLEAR = [
    Scenario(name="until decided, true 1.05, loads 1%", truths=(1.05,)),
    Scenario(name="until decided, true 0.95 and 1.05, loads 1%", truths=(0.95, 1.05)),
]

PATHS = (
    *(
        Path(name=scenario.name, simulate=partial(simulate, replace(scenario, repeats=MOST_REPEATS)))
        for scenario in _EQUAL
    ),
    *(
        Path(
            name=scenario.name,
            simulate=partial(simulate, replace(scenario, repeats=MOST_REPEATS)),
            least_found=0.9,
        )
        for scenario in _CLEAR
    ),
)
