"""Benches, comparisons and guards beside other programs, on a machine with two cores.

Other programs keep part of the processor busy, all the time or now and then. They slow a run by a multiple of
the share of the processor that they take, drawn anew for each bench: 0.2 as with a core for each thread, to 2
as with threads that wait for each other. A bench also draws how unequally its arms are slowed, with the
standard deviation that ``scripts/validate_disturbance.py`` found beside a real busy loop, and runs scatter by
a quarter of what they are slowed by. The rest of the noise is that of ``core``; true values are of the quiet
machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ggufspec import stats
from ggufspec.analysis import arms, comparing, guarding
from ggufspec.domain import Conditions, RunSpec, SpeedVerdict, StoppingRule
from ggufspec.results import ResultSet
from interval_paths import stored
from interval_paths.core import Scenario, positions, run_times
from interval_paths.paths import Outcome, Path, guards_wrongly, judge, judge_row
from interval_paths.stored import SimulatedArm, Table

_CORES = stored.MACHINE.cores
_UNEQUAL = 0.13 / math.log(2)  # of an expected slow-down: 0.13 of ln 2 was seen beside one busy loop
_BUSY = 0.2  # of a core, from which on a run counts as disturbed
_FAIL_SLOWER = 0.02


@dataclass(frozen=True, kw_only=True)
class Load:
    """What other programs do: how many cores they take while they run, and how often that is.

    Attributes:
        cores: that are busy while they run.
        share: of the time in which they run.
        runs: how many runs of the bench they go on for, on average.
        name: in words.
    """

    cores: float
    share: float = 1.0
    runs: float = 4.0
    name: str


ONE = Load(cores=1.0, name="one busy core")
HALF = Load(cores=0.5, name="half a busy core")
PAGE = Load(cores=0.7, share=0.3, name="a page now and then")
BUILD = Load(cores=1.5, share=0.5, runs=20.0, name="builds now and then")
LOADS = (ONE, HALF, PAGE, BUILD)


def simulate(scenario: Scenario, load: Load, seed: int) -> Outcome:
    """Return what the speed-up of one bench says."""
    return judge_row(arms.group(_bench(scenario, load, seed))[1].judgement, math.log(scenario.truth))


def simulate_sequence(scenario: Scenario, load: Load, seed: int) -> Outcome:
    """Return the same of a bench that is measured until its verdict is decided."""
    rule = StoppingRule(least_repeats=3, most_repeats=scenario.repeats, comparisons=1)
    return judge_row(
        arms.group(_bench(scenario, load, seed, stopping=rule))[1].judgement, math.log(scenario.truth)
    )


def simulate_builds(scenario: Scenario, load: Load, seed: int) -> Outcome:
    """Return what ``compare`` says of the target alone with two builds, and whether a guard is wrong."""
    compared = comparing.compare(_builds(scenario, load, seed))
    change = compared.rows[0].change
    outcome = judge(change.ratio, change.verdict or SpeedVerdict.UNDECIDED, math.log(scenario.truth))
    state = guarding.guard(compared, _FAIL_SLOWER).rows[0].state
    is_wrong = guards_wrongly(state, scenario.truth, _FAIL_SLOWER)
    return replace(outcome, false_verdict=bool(outcome.false_verdict) or is_wrong)


def _bench(scenario: Scenario, load: Load, seed: int, stopping: StoppingRule | None = None) -> ResultSet:
    specs = stored.target_alone(), stored.drafting()
    simulated = _simulate_arms(scenario, load, np.random.default_rng(seed), specs)
    engine = "binary" if scenario.own_processes else "server"
    return stored.bench(simulated, engine=engine, stopping=stopping)


def _builds(scenario: Scenario, load: Load, seed: int) -> ResultSet:
    spec = stored.target_alone()
    specs = replace(spec, build="old"), replace(spec, build="new")
    simulated = _simulate_arms(scenario, load, np.random.default_rng(seed), specs)
    engine = "binary" if scenario.own_processes else "server"
    return stored.bench(simulated, engine=engine, builds=stored.BUILDS)


def _simulate_arms(
    scenario: Scenario, load: Load, random: np.random.Generator, specs: Sequence[RunSpec]
) -> list[SimulatedArm]:
    """Return a baseline and an arm that is as much faster as the scenario says, beside other programs."""
    logs = run_times(random, scenario)
    taken = _cores_taken(random, scenario, load)
    expected = stats.expected_slowdown(taken, _CORES)
    factor, unequal = random.uniform(0.2, 2.0), random.normal(0, _UNEQUAL)
    scatter = random.normal(1, 0.25, expected.shape)
    logs = logs + expected * (factor * scatter + unequal * np.array([0.5, -0.5])[:, None, None])
    hardness = random.normal(0, 0.1, (scenario.prompts, 1))
    loads = np.tile(np.arange(scenario.repeats), (scenario.prompts, 1))
    return [
        SimulatedArm(
            spec=spec,
            tps=50.0 * np.exp(gain + hardness - logs[number]),
            loads=None if scenario.own_processes else loads + scenario.repeats * number,
            conditions={
                (p, r): Conditions(others_cores=float(cores))
                for (p, r), cores in np.ndenumerate(taken[number])
            },
            doubts={
                (p, r): ("busy-machine",) for (p, r), cores in np.ndenumerate(taken[number]) if cores > _BUSY
            },
        )
        for number, (spec, gain) in enumerate(zip(specs, (0.0, math.log(scenario.truth)), strict=True))
    ]


def _cores_taken(random: np.random.Generator, scenario: Scenario, load: Load) -> Table:
    """Return how many cores other programs keep busy during each run, shape (2 arms, prompts, repeats)."""
    order = positions(random, scenario)
    runs = order.size
    if load.share == 1:
        return load.cores * random.uniform(0.8, 1.2, order.shape)
    ends, begins = 1 / load.runs, load.share / (1 - load.share) / load.runs
    is_on, states = bool(random.random() < load.share), []
    for draw in random.random(runs).tolist():
        is_on = draw >= ends if is_on else draw < begins
        states.append(is_on)
    parts = random.uniform(0.3, 1.0, runs)  # of a run's time
    return np.asarray(load.cores * (np.array(states) * parts)[order])


_DESIGNS = [Scenario(prompts=8, repeats=5, load=0.01, own_processes=own, truth=1.5) for own in (False, True)]


def _path(scenario: Scenario, load: Load, what: str, least_found: float | None = None) -> Path:
    truth = f", true {scenario.truth:g}" if what == "until decided" else ""
    named = replace(scenario, name=f"beside {load.name}, {what}{truth}")
    simulate_one = {"A/A of builds": simulate_builds, "until decided": simulate_sequence}.get(what, simulate)
    return Path(name=named.title, simulate=partial(simulate_one, named, load), least_found=least_found)


PATHS = (
    *(
        _path(scenario, load, "true 1.5", least_found=0.8 if load is ONE else None)
        for load in LOADS
        for scenario in _DESIGNS
    ),
    *(
        _path(replace(scenario, truth=1.0), load, what)
        for what, loads in (("A/A", LOADS), ("A/A of builds", (ONE, HALF)))
        for load in loads
        for scenario in _DESIGNS
    ),
    *(
        _path(replace(_DESIGNS[0], truth=truth, repeats=12), load, "until decided")
        for truth in (1.0, 1.5)
        for load in (ONE, PAGE)
    ),
)
