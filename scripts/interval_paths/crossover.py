"""Maps of ``ggufspec crossover``: users × depths, three draft sizes, cells repeated until they are decided.

The ends of both axes are measured first; then whatever ``tuning.choose_points`` asks for, without a time
limit. Loads of each arm differ by chance. A map is false if a cell says that drafting is faster, slower or
the same, and that is not true of the draft size that it names. Of the cells, one that is drawn at random says
whether it was decided, and how wide its interval is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ggufspec.analysis import LOOKS, CrossoverCell, map_crossover
from ggufspec.domain import Prompt, RunSpec, SpeedVerdict, Traffic
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.results import CrossoverAxes, ResultSet
from ggufspec.stats import family_quantile
from ggufspec.tuning.crossing import choose_points, coarse_points
from interval_paths import stored
from interval_paths.paths import Outcome, Path
from interval_paths.stored import SimulatedArm

DRAFTS = (2, 4, 8)

Truth = Callable[[TrafficPoint, int], float]
"""Place and draft size -> the logarithm of the true speed-up."""


def equal(place: TrafficPoint, draft: int) -> float:
    """Drafting is as fast as the target alone everywhere."""
    return 0.0


def faster(place: TrafficPoint, draft: int) -> float:
    """The best draft size gains 10 % everywhere, the others 5 and 8 %."""
    return math.log({2: 1.05, 4: 1.1, 8: 1.08}[draft])


def falling(place: TrafficPoint, draft: int) -> float:
    """Drafting gains 40 % for one user and loses 30 % for eight, large drafts most."""
    return math.log(1.4) - math.log(place.users) / math.log(8) * (math.log(2.0) + 0.02 * draft)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of map; ``load`` is the standard deviation of a log speed between loads, by place."""

    name: str
    users: tuple[int, ...]
    depths: tuple[int, ...]
    truth: Truth
    load: Callable[[TrafficPoint], float] = field(default=lambda place: 0.02)

    @property
    def axes(self) -> CrossoverAxes:
        return CrossoverAxes(users=self.users, depths=self.depths)


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what one map says."""
    random = np.random.default_rng(seed)
    places = [TrafficPoint(users, depth) for users in scenario.users for depth in scenario.depths]
    arms = {place: _measure(scenario, place, random) for place in places}
    first = coarse_points(scenario.axes)
    plan: Any = SimpleNamespace(
        axes=scenario.axes,
        repeats=LOOKS[0],
        blocks={place: SimpleNamespace(arms=arms[place]) for place in places},
    )
    done = dict.fromkeys(first, LOOKS[0])
    tried = {(place, LOOKS[0]) for place in first}
    while True:
        results = _stored(arms, done)
        chosen, repeats = choose_points(plan, results, math.inf, tried)
        if not chosen:
            break
        done.update(dict.fromkeys(chosen, repeats))
        tried |= {(place, repeats) for place in chosen}
    found = map_crossover(results, scenario.axes)
    drawn = found.cells[int(random.integers(len(found.cells)))]
    return _judge(scenario, found.cells, drawn)


def _judge(scenario: Scenario, cells: tuple[CrossoverCell, ...], drawn: CrossoverCell) -> Outcome:
    gains = [
        (cell.place, gain) for cell in cells for gain in cell.gains if gain.speedup.lo and gain.speedup.hi
    ]
    holds = all(
        math.log(gain.speedup.lo or 0) <= scenario.truth(place, gain.draft) <= math.log(gain.speedup.hi or 0)
        for place, gain in gains
    )
    best_true = max(scenario.truth(drawn.place, draft) for draft in DRAFTS)
    best = drawn.best
    half = known = None
    if best is not None and best.speedup.lo and best.speedup.hi and drawn.repeats:
        half = math.log(best.speedup.hi / best.speedup.lo) / 2
        confidence = 1 - 0.05 / (len(cells) * len(LOOKS))
        spread = math.sqrt(2 / drawn.repeats) * scenario.load(drawn.place)
        known = family_quantile(len(DRAFTS), 1e6, confidence) * spread
    return Outcome(
        holds=holds,
        false_verdict=any(_is_wrong(scenario, cell) for cell in cells),
        decided=drawn.verdict is not SpeedVerdict.UNDECIDED if abs(best_true) > math.log(1.01) else None,
        half_width=half,
        known_half_width=known,
    )


def _is_wrong(scenario: Scenario, cell: CrossoverCell) -> bool:
    truths = {draft: scenario.truth(cell.place, draft) for draft in DRAFTS}
    match cell.verdict:
        case SpeedVerdict.FASTER:
            return cell.choice is None or truths[cell.choice] <= 0
        case SpeedVerdict.SLOWER:
            return max(truths.values()) >= 0
        case SpeedVerdict.SAME:
            return max(truths.values()) > math.log(1.01)
    return False


def _measure(scenario: Scenario, place: TrafficPoint, random: np.random.Generator) -> list[SimulatedArm]:
    """Return the target alone and each draft size in a cell, with the most repeats."""
    traffic = Traffic(
        users=place.users, depth=place.depth, prompts=(Prompt(id="a", text="a"),), n_requests=place.users
    )
    logs = math.log(50 * place.users**0.6) - place.depth / 1e5
    specs: list[tuple[RunSpec, float]] = [(stored.target_alone(), 0.0)]
    specs += [(stored.drafting(draft), scenario.truth(place, draft)) for draft in DRAFTS]
    drift = random.normal(0, 0.02, (1, LOOKS[-1]))
    return [
        SimulatedArm(
            spec=replace(spec, traffic=traffic),
            tps=np.exp(logs + truth + drift + random.normal(0, scenario.load(place), (1, LOOKS[-1]))),
            loads=np.arange(LOOKS[-1])[None, :] + 1000 * number + 10_000 * (place.users + place.depth),
            prompts=["traffic"],
        )
        for number, (spec, truth) in enumerate(specs)
    ]


def _stored(arms: Mapping[TrafficPoint, list[SimulatedArm]], done: Mapping[TrafficPoint, int]) -> ResultSet:
    """Return the bench after so many repeats of each cell."""
    cut = [
        replace(arm, tps=np.where(np.arange(LOOKS[-1]) < repeats, arm.tps, np.nan))
        for place, repeats in done.items()
        for arm in arms[place]
    ]
    return stored.bench(cut)


_SCENARIOS = (
    Scenario(name="crossover 4 × 1, equal", users=(1, 2, 4, 8), depths=(0,), truth=equal),
    Scenario(name="crossover 4 × 3, equal", users=(1, 2, 4, 8), depths=(0, 1024, 4096), truth=equal),
    Scenario(
        name="crossover 4 × 2, equal, noisier with more users",
        users=(1, 2, 4, 8),
        depths=(0, 4096),
        truth=equal,
        load=lambda place: 0.01 * math.sqrt(place.users),
    ),
    Scenario(name="crossover 4 × 2, from 1.4 to 0.6", users=(1, 2, 4, 8), depths=(0, 4096), truth=falling),
)
_GAINS = (
    Scenario(name="crossover 4 × 2, gain 10 %", users=(1, 2, 4, 8), depths=(0, 4096), truth=faster),
    Scenario(
        name="crossover 4 × 2, gain 10 %, loads 3 %",
        users=(1, 2, 4, 8),
        depths=(0, 4096),
        truth=faster,
        load=lambda place: 0.03,
    ),
)

PATHS = (
    *(Path(name=scenario.name, simulate=partial(simulate, scenario), widest=1.2) for scenario in _SCENARIOS),
    *(
        Path(name=scenario.name, simulate=partial(simulate, scenario), least_found=0.7, widest=1.2)
        for scenario in _GAINS
    ),
)
