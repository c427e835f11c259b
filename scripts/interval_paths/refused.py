"""Benches whose runs were disturbed by something of which nobody knows what it did: swapping, or heat.

A GPU that lowers its clocks slows one arm by a tenth, although both are equally fast. A run that was seen to
be disturbed is left out, if it is one of few. Where most are, there may be neither an interval nor a verdict,
on any path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.analysis import Arm, BenchComparison, MeasurementWarning, arms, compare, guarding, rank
from ggufspec.domain import Role, RunSpec, SpeedVerdict, StoppingRule
from ggufspec.errors import InconclusiveError
from ggufspec.report.rows.runs import ArmOnPrompts
from ggufspec.results import ResultSet
from interval_paths import stored
from interval_paths.core import Scenario, simulate_arms
from interval_paths.paths import Outcome, Path, judge, judge_row
from interval_paths.stored import SimulatedArm

_SLOWED = 0.1  # a disturbed run of the first arm, in logarithms

Bench = Callable[..., ResultSet]


@dataclass(frozen=True, kw_only=True)
class Heat:
    """A share of the runs of one arm is disturbed, each with this name of a warning."""

    share: float
    name: MeasurementWarning


def simulate(scenario: Scenario, heat: Heat, judge_bench: Callable[[Bench], Outcome], seed: int) -> Outcome:
    """Return what one path says; it may measure several benches."""
    random = np.random.default_rng(seed)

    def measure(specs: tuple[RunSpec, RunSpec], **facts: Any) -> ResultSet:
        both, _ = simulate_arms(scenario, random)
        hot = random.random(both[0].tps.shape) < heat.share
        pairs = zip(both, specs, (hot, np.zeros_like(hot)), strict=True)
        simulated = [_disturb(replace(arm, spec=spec), where, heat.name) for arm, spec, where in pairs]
        return stored.bench(simulated, engine="binary" if scenario.own_processes else "server", **facts)

    return judge_bench(measure)


def _disturb(arm: SimulatedArm, hot: NDArray[np.bool_], name: MeasurementWarning) -> SimulatedArm:
    doubts = {(int(p), int(r)): (name.value,) for p, r in np.argwhere(hot)}
    return replace(arm, tps=arm.tps * np.exp(-_SLOWED * hot), doubts=doubts)


def _drafts(bench: ResultSet) -> Arm:
    return next(arm for arm in arms.group(bench) if arm.role is Role.DRAFTING)


def judge_speedup(measure: Bench) -> Outcome:
    """Return what the row of an arm says."""
    return judge_row(_drafts(measure((stored.target_alone(), stored.drafting()))).judgement, 0.0)


def judge_best(measure: Bench) -> Outcome:
    """Return what the sentence about the best arm says."""
    arm = _drafts(measure((stored.target_alone(), stored.drafting())))
    assert arm.judgement is not None
    return judge_row(rank([(arm, arm.judgement)] * 3).judgement, 0.0)


def judge_category(measure: Bench) -> Outcome:
    """Return what the row of a category says."""
    (row,) = ArmOnPrompts.by_category(_drafts(measure((stored.target_alone(), stored.drafting()))))
    return judge_row(row.judgement, 0.0)


def judge_sequence(measure: Bench) -> Outcome:
    """Return what a bench says that is measured until it is decided."""
    rule = StoppingRule(least_repeats=3, most_repeats=5, comparisons=1)
    return judge_row(
        _drafts(measure((stored.target_alone(), stored.drafting()), stopping=rule)).judgement, 0.0
    )


def judge_builds(measure: Bench) -> Outcome:
    """Return what ``compare`` and a guard say of two llama.cpps in one bench."""
    spec = stored.drafting()
    both = replace(spec, build="old"), replace(spec, build="new")
    return _judge_comparison(compare(measure(both, builds=stored.BUILDS)))


def judge_sessions(measure: Bench) -> Outcome:
    """Return the same of sessions, three a side."""
    sides = [
        [measure((stored.drafting(), stored.target_alone()), name=f"{side}-{number}") for number in range(3)]
        for side in range(2)
    ]
    return _judge_comparison(compare(*sides))


def _judge_comparison(compared: BenchComparison) -> Outcome:
    change = compared.rows[-1].change  # of the arm that drafts, whose runs were disturbed
    outcome = judge(change.ratio, change.verdict or SpeedVerdict.UNDECIDED, 0.0)
    try:
        guarding.raise_if_slower(guarding.guard(compared, 0.02))
    except InconclusiveError:
        return outcome
    return replace(outcome, false_verdict=True)


_JUDGED = {
    "speed-up": judge_speedup,
    "best of three": judge_best,
    "category": judge_category,
    "until decided": judge_sequence,
    "builds and guard": judge_builds,
    "sessions and guard": judge_sessions,
}
_SCENARIO = Scenario(prompts=8, repeats=5, load=0.01, truth=1.0)

PATHS = (
    *(
        Path(
            name=f"{what}, {name.value} during {share:.0%} of one arm's runs",
            simulate=partial(simulate, scenario, Heat(share=share, name=name), judge_bench),
        )
        for what, judge_bench in _JUDGED.items()
        for share, name, scenario in (
            (0.8, MeasurementWarning.GPU_THROTTLED, _SCENARIO),
            (1.0, MeasurementWarning.SWAPPING, replace(_SCENARIO, own_processes=True)),
        )
    ),
    *(
        Path(
            name=f"speed-up, {name.value} during 30% of one arm's runs, {kind}",
            simulate=partial(simulate, scenario, Heat(share=0.3, name=name), judge_speedup),
        )
        for name, scenario, kind in (
            (MeasurementWarning.GPU_THROTTLED, _SCENARIO, "loads differ by 1%"),
            (MeasurementWarning.SWAPPING, replace(_SCENARIO, own_processes=True), "own processes"),
        )
    ),
)
