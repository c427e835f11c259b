"""Servers that run already, and sessions: few loads, each of many runs.

Runs of a server vary by 1.5 % and drift slowly; starts of one server differ by chance, and so do sessions of
one machine. Where fewer than three loads were measured, the interval assumes that they differ by 5 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ggufspec.analysis import arms, compare, guarding
from ggufspec.domain import Endpoint, RunSpec
from ggufspec.results import ResultSet
from ggufspec.stats import ASSUMED_SPREAD
from interval_paths import stored
from interval_paths.core import make_drift
from interval_paths.paths import Outcome, Path, guards_wrongly, judge, judge_row
from interval_paths.stored import SimulatedArm, Table

_SPEED = 50.0  # tokens/s of the target
_RUN_SD = 0.015
_DRIFT_SD = 0.02  # of the machine, shared by both servers
_FAIL_SLOWER = 0.02  # of the guard that tests sessions, too


@dataclass(frozen=True, kw_only=True)
class Design:
    """Standard deviations are of logarithms.

    Attributes:
        load: by how much loads differ, or sessions.
        starts: of each server, each repeat asks the next one; or sessions.
        after: sessions after, where they are not as many as before.
        repeats: runs of each server, all its starts together.
        truth: the ratio of speeds.
    """

    load: float
    starts: int = 1
    after: int | None = None
    repeats: int = 6
    truth: float = 1.0


def simulate_servers(design: Design, seed: int) -> Outcome:
    """Return what a bench of two servers says that run already."""
    random = np.random.default_rng(seed)
    return judge_row(arms.group(_make_servers(design, random))[1].judgement, math.log(design.truth))


def _make_servers(design: Design, random: np.random.Generator) -> ResultSet:
    drift = _make_drift(random, design.repeats)
    specs = _name_servers(design.starts)
    simulated = []
    for number, spec in enumerate(specs):
        loads = random.normal(0, design.load, design.starts)[np.arange(design.repeats) % design.starts]
        logs = math.log(_SPEED) + drift + loads + random.normal(0, _RUN_SD, design.repeats)
        logs = logs + (math.log(design.truth) if number else 0.0)
        simulated.append(SimulatedArm(spec=spec, tps=np.exp(logs)[None, :]))
    return stored.bench(simulated, engine="running")


def _name_servers(starts: int) -> tuple[RunSpec, RunSpec]:
    """Return the runs of the target alone and of drafting, with as many servers of each kind."""
    alone, drafting = stored.running_servers(alone="http://a.example", drafting="http://b.example")
    more = [
        tuple(Endpoint(url=f"http://{name}{number}.example", model="tiny") for number in range(1, starts))
        for name in "ab"
    ]
    assert alone.servers is not None
    assert drafting.servers is not None
    return (
        replace(alone, servers=replace(alone.servers, more_alone=more[0])),
        replace(drafting, servers=replace(drafting.servers, more_alone=more[0], more_drafting=more[1])),
    )


def _make_drift(random: np.random.Generator, runs: int) -> Table:
    """Return how much slower the machine is at each repeat (AR(1), φ = 0.9)."""
    first = float(random.normal(0, _DRIFT_SD))
    steps = random.normal(0, _DRIFT_SD * math.sqrt(1 - 0.9**2), runs - 1).tolist()
    return -make_drift(first, steps, 0.9)


def simulate_sessions(design: Design, seed: int, *, engine: str) -> Outcome:
    """Return what ``compare`` says of sessions, ``design.starts`` a side, each a bench of its own.

    A session makes all its runs faster or slower by chance; in servers, so does each load of it.
    """
    random = np.random.default_rng(seed)
    sides = [
        [_make_session(random, design, side, number, engine) for number in range(sessions)]
        for side, sessions in enumerate((design.starts, design.after or design.starts))
    ]
    compared = compare(*sides)
    change = compared.rows[-1].change
    outcome = judge(change.ratio, change.verdict, math.log(design.truth))
    if not guarding.is_testable(compared):
        return outcome
    (row,) = guarding.guard(compared, _FAIL_SLOWER).rows
    is_wrong = guards_wrongly(row.state, design.truth, _FAIL_SLOWER)
    return replace(outcome, false_verdict=bool(outcome.false_verdict) or is_wrong)


def _make_session(
    random: np.random.Generator, design: Design, side: int, number: int, engine: str
) -> ResultSet:
    """Return a bench of a session; drafting is ``design.truth`` times as fast on the second side."""
    session = random.normal(0, design.load)
    if engine == "running":
        specs: tuple[RunSpec, RunSpec] = _name_servers(1)
        prompts, repeats = 1, design.repeats
        specs = (
            _with_start(specs[0], f"{side}-{number}"),
            _with_start(specs[1], f"{side}-{number}"),
        )
    else:
        specs = stored.target_alone(), stored.drafting()
        prompts, repeats = 8, 3
    simulated = []
    for place, spec in enumerate(specs):
        logs = math.log(_SPEED) + session - random.normal(0, _RUN_SD, (prompts, repeats))
        logs = logs - np.linspace(0, 0.3, prompts)[:, None]  # prompts differ in speed, alike on both sides
        logs = logs + (math.log(design.truth) if side and place else 0.0)
        simulated.append(SimulatedArm(spec=spec, tps=np.exp(logs)))
    return stored.bench(simulated, engine=engine, name=f"{side}-{number}")


def _with_start(spec: RunSpec, start: str) -> RunSpec:
    """Return a run of servers that were started anew for a session."""
    servers = spec.servers
    assert servers is not None
    alone, drafting = (
        None if endpoint is None else replace(endpoint, start=start)
        for endpoint in (servers.alone, servers.drafting)
    )
    return replace(spec, servers=replace(servers, alone=alone, drafting=drafting))


_SPREADS = (0.005, 0.01, 0.02, 0.03, ASSUMED_SPREAD)

PATHS = (
    *(
        Path(
            name=f"running servers, one start, loads differ by {load:.1%}, A/A",
            simulate=partial(simulate_servers, Design(load=load)),
        )
        for load in _SPREADS
    ),
    *(
        Path(
            name=f"running servers, {starts} starts, loads differ by {load:.1%}, A/A",
            simulate=partial(simulate_servers, Design(load=load, starts=starts, repeats=12)),
        )
        for starts in (2, 3, 5)
        for load in (0.01, 0.03)
    ),
    Path(
        name="running servers, one start, loads differ by 1.0%, true 2",
        simulate=partial(simulate_servers, Design(load=0.01, truth=2.0)),
    ),
    Path(
        name="running servers, 5 starts, loads differ by 1.0%, true 1.05",
        simulate=partial(simulate_servers, Design(load=0.01, starts=5, repeats=10, truth=1.05)),
        least_found=0.9,
    ),
    *(
        Path(
            name=f"compare, {engine}, {before} against {after}, sessions differ by {load:.1%}, A/A",
            simulate=partial(simulate_sessions, Design(load=load, starts=before, after=after), engine=engine),
        )
        for engine, sessions in (
            ("binary", ((1, 1), (1, 5), (2, 2), (3, 3), (5, 5))),
            ("running", ((1, 1), (3, 3))),
        )
        for before, after in sessions
        for load in (0.01, 0.03)
    ),
    *(
        Path(
            name=f"compare, binary, 5 against 5, sessions differ by 1.0%, true {truth:g}",
            simulate=partial(simulate_sessions, Design(load=0.01, starts=5, truth=truth), engine="binary"),
            least_found=0.9,
        )
        for truth in (0.95, 1.05)
    ),
)
