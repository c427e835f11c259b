"""Two llama.cpps in one bench: what ``compare`` and *new/old* say, and a guard (``--fail-slower 2%``).

The noise is that of ``core``. The comparison is on these prompts: where they differ in their change, the true
value is their mean.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ggufspec.analysis import BenchComparison, GuardState, compare, guarding
from interval_paths import stored
from interval_paths.core import Scenario, make_bench, path, simulate_arms
from interval_paths.paths import Outcome, guards_wrongly, judge

FAIL_SLOWER = 0.02


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what ``compare`` says of the arm."""
    compared, truth = _compare(scenario, seed)
    change = compared.rows[0].change
    return judge(change.ratio, change.verdict, truth)


def simulate_guard(scenario: Scenario, seed: int) -> Outcome:
    """Return whether a guard is right."""
    compared, truth = _compare(scenario, seed)
    (row,) = guarding.guard(compared, FAIL_SLOWER).rows
    return Outcome(
        holds=math.log(row.lo) <= truth <= math.log(row.hi),
        false_verdict=guards_wrongly(row.state, scenario.truth, FAIL_SLOWER),
        decided=row.state is not GuardState.UNDECIDED,
        half_width=math.log(row.hi / row.lo) / 2,
    )


def _compare(scenario: Scenario, seed: int) -> tuple[BenchComparison, float]:
    """Return the comparison of a bench, and the true logarithm of new over old."""
    simulated, effects = simulate_arms(scenario, np.random.default_rng(seed))
    spec = stored.drafting()
    pairs = zip(simulated, stored.BUILDS, strict=True)
    both = [replace(arm, spec=replace(spec, build=name)) for arm, name in pairs]
    compared = compare(make_bench(scenario, both, builds=stored.BUILDS))
    return compared, math.log(scenario.truth) + float(effects.mean())


def _named(scenario: Scenario, what: str) -> Scenario:
    return replace(scenario, name=f"{what}, true {scenario.truth:g}")


_DESIGNS = [
    Scenario(prompts=8, repeats=repeats, load=0.01, own_processes=own, spread=spread)
    for own in (False, True)
    for repeats in (3, 5)
    for spread in (0.0, 0.06)
]
_GUARDED = [
    Scenario(prompts=8, repeats=repeats, load=0.01, own_processes=own)
    for own, repeats in ((True, 8), (True, 16), (False, 16))
]

PATHS = (
    *(path(_named(replace(scenario, truth=1.0), "new/old"), simulate) for scenario in _DESIGNS),
    *(
        path(_named(replace(scenario, truth=1.05), "new/old"), simulate, least_found=0.9)
        for scenario in _DESIGNS
        if (scenario.repeats, scenario.spread) == (5, 0.0)
    ),
    *(
        path(_named(replace(scenario, truth=truth), "guard 2%"), simulate_guard)
        for scenario in _GUARDED
        for truth in (1.0, 0.98, 0.97, 0.95)
    ),
)
