"""Tunings: six finalists are measured with three loads or more, and the winner and the next are confirmed.

Finalists that are too close to choose one have up to six loads where there is time. The confirmation has
other prompts than the selection, and three loads where time is short; without a time limit, eight or more.
The regret is what the choice is slower than the best finalist, or the target alone, by the true speeds over
all prompts of their kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ggufspec.analysis import arms
from ggufspec.measure.measuring import FIRST_LOOK
from ggufspec.tuning.budgeting import CONFIRMING_REPEATS, MOST_SELECTING_REPEATS, SELECTING_REPEATS
from ggufspec.tuning.values import Selection, Spent
from ggufspec.tuning.verdicts import judge_finalists, select_arms
from interval_paths import stored
from interval_paths.paths import Outcome, Path, judge, judge_row
from interval_paths.stored import SimulatedArm

_SPEED = 50.0  # tokens/s of the target
_RUN_SD = 0.015


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A kind of tuning; standard deviations are of logarithms.

    Attributes:
        name: its row in the table.
        truths: the true speed-up of each finalist, at γ = 1, 2, …
        load: by how much loads differ.
        prompts: of the selection, and as many others of the confirmation.
        common: by how much prompts differ in the speed-up of all finalists alike.
        own: by how much prompts differ in that of each finalist beside.
        categories: of the prompts, which truly are all alike.
        selecting: loads of each finalist at most: three, or more where finalists are too close to choose one.
        confirming: loads of the winner and the next: the least, or what ±2 % takes without a time limit.
    """

    name: str
    truths: tuple[float, ...]
    load: float = 0.01
    prompts: int = 8
    common: float = 0.06
    own: float = 0.02
    categories: int = 1
    selecting: int = SELECTING_REPEATS
    confirming: int = CONFIRMING_REPEATS


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Return what one tuning chose."""
    random = np.random.default_rng(seed)
    sizes = range(1, len(scenario.truths) + 1)
    selection = _select(_measure(scenario, sizes, scenario.selecting, "s", random))
    chosen = [spec.draft_size for spec in (selection.winner, selection.runner_up) if spec is not None]
    confirming = [size for size in chosen if size]
    confirmed = stored.bench(_measure(scenario, confirming, scenario.confirming, "c", random))
    outlook: Any = SimpleNamespace(prospects=(), spent=Spent())
    tuned = judge_finalists(outlook, selection, confirmed, measuring_s=0.0)
    overall = tuned.overall
    size, best = overall.spec.draft_size, max(1.0, *scenario.truths)
    regret = math.log(best / (scenario.truths[size - 1] if size else 1.0))
    candidate, judgement = overall.candidate, overall.judgement
    assert judgement is not None
    truth = scenario.truths[candidate.draft_size - 1] if candidate and candidate.draft_size else 1.0
    outcome = judge(judgement.ratio, judgement.verdict, math.log(truth))
    speeds = dict(zip((0, *sizes), (1.0, *scenario.truths), strict=True))
    others = {choice.spec.draft_size for choice in tuned.by_category.values() if choice.drafts} - {size}
    return Outcome(
        holds=outcome.holds,
        false_verdict=outcome.false_verdict
        or any(speeds[other or 0] <= speeds[size or 0] for other in others),
        decided=outcome.decided,
        half_width=outcome.half_width,
        regret=regret,
    )


def _select(measured: Sequence[SimulatedArm]) -> Selection:
    """Return what a selection chooses, which has the later of these loads only where it needs them."""
    arms = [arm.up_to(SELECTING_REPEATS) for arm in measured]
    selection = select_arms(stored.bench(arms))
    for repeats in range(SELECTING_REPEATS + 1, measured[0].tps.shape[1] + 1):
        racing = {spec.draft_size for spec in selection.racing}
        if not racing:
            break
        arms = [
            whole.up_to(repeats) if whole.spec.drafting is None or whole.spec.draft_size in racing else arm
            for whole, arm in zip(measured, arms, strict=True)
        ]
        selection = select_arms(stored.bench(arms), selection.racing)
    return selection


def _measure(
    scenario: Scenario, sizes: Any, repeats: int, prefix: str, random: np.random.Generator
) -> list[SimulatedArm]:
    """Return the target alone and some draft sizes on new prompts."""
    shape = scenario.prompts, repeats
    drift = random.normal(0, 0.02, (1, repeats))
    hardness = random.normal(0, 0.1, (scenario.prompts, 1))
    common = random.normal(0, scenario.common, (scenario.prompts, 1))
    names = [f"{prefix}{number:03}" for number in range(scenario.prompts)]
    categories = [f"category {number % scenario.categories}" for number in range(scenario.prompts)]
    simulated = []
    for size in (0, *sizes):
        gain = math.log(scenario.truths[size - 1]) + common if size else 0.0
        own = random.normal(0, scenario.own if size else 0.0, (scenario.prompts, 1))
        loads = random.normal(0, scenario.load, (1, repeats))
        noise = random.normal(0, _RUN_SD, shape)
        simulated.append(
            SimulatedArm(
                spec=stored.drafting(size) if size else stored.target_alone(),
                tps=_SPEED * np.exp(gain + own + hardness + drift + loads + noise),
                loads=np.tile(np.arange(repeats), (scenario.prompts, 1)) + 1000 * size,
                prompts=names,
                categories=categories,
            )
        )
    return simulated


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """A confirmation of one arm; prompts differ in their speed-up by 8 %, as domains do, where it has one."""

    truth: float
    load: float
    run: float
    prompts: int
    loads: int

    @property
    def title(self) -> str:
        """The name of its row."""
        return (
            f"confirmation {self.prompts} × {self.loads}, loads differ by {self.load:.0%}, runs by "
            f"{self.run:.0%}, true {self.truth:g}"
        )


def simulate_confirmation(design: Confirmation, seed: int) -> Outcome:
    """Return what a confirmation says of one arm."""
    random = np.random.default_rng(seed)
    own = random.normal(0, 0.08 if design.truth != 1 else 0.0, (design.prompts, 1))
    simulated = []
    for number, middle in enumerate((np.zeros_like(own), math.log(design.truth) + own)):
        loads = random.normal(0, design.load, (1, design.loads))
        noise = random.normal(0, design.run, (design.prompts, design.loads))
        simulated.append(
            SimulatedArm(
                spec=stored.drafting() if number else stored.target_alone(),
                tps=_SPEED * np.exp(middle + loads + noise),
                loads=np.tile(np.arange(design.loads), (design.prompts, 1)) + 100 * number,
            )
        )
    return judge_row(arms.group(stored.bench(simulated))[1].judgement, math.log(design.truth))


_SIZES = (1.25, 1.36, 1.42, 1.45, 1.46, 1.44)  # as speed-ups rise and fall with γ
_LIMITS: tuple[tuple[str, int, int], ...] = (
    ("", SELECTING_REPEATS, CONFIRMING_REPEATS),
    (", time for more", MOST_SELECTING_REPEATS, CONFIRMING_REPEATS),
    (", no time limit", MOST_SELECTING_REPEATS, FIRST_LOOK),
)
_SCENARIOS = (
    *(
        Scenario(
            name=f"tune, finalists from 1.25 to 1.46, loads {100 * load:g} %{limit}",
            truths=_SIZES,
            load=load,
            selecting=selecting,
            confirming=confirming,
        )
        for load in (0.01, 0.02, 0.03)
        for limit, selecting, confirming in _LIMITS
    ),
    *(
        Scenario(
            name=f"tune, finalists from 1.0 to 1.1{limit}",
            truths=(1.0, 1.04, 1.08, 1.1, 1.09, 1.05),
            selecting=selecting,
            confirming=confirming,
        )
        for limit, selecting, confirming in _LIMITS
    ),
    Scenario(name="tune, one of six is 1.05 times the others", truths=(1.4, 1.4, 1.47, 1.4, 1.4, 1.4)),
    Scenario(name="tune, finalists from 0.7 to 0.95", truths=(0.95, 0.9, 0.85, 0.8, 0.75, 0.7)),
    Scenario(name="tune, 12 prompts of 3 categories that are alike", truths=_SIZES, prompts=12, categories=3),
)
_CONFIRMATIONS = [
    Confirmation(truth=truth, load=load, run=run, prompts=prompts, loads=loads)
    for truth, load, run in ((1.6, 0.05, 0.05), (1.6, 0.1, 0.05), (1.0, 0.05, 0.05), (1.0, 0.1, 0.02))
    for prompts, loads in ((4, 3), (8, 3), (8, 4))
]

PATHS = (
    *(
        Path(
            name=scenario.name, simulate=partial(simulate, scenario), most_regret=0.01, most_regret_of_95=0.02
        )
        for scenario in _SCENARIOS
    ),
    *(
        Path(
            name=design.title,
            simulate=partial(simulate_confirmation, design),
            least_found=0.95 if (design.truth, design.load) == (1.6, 0.05) else None,
        )
        for design in _CONFIRMATIONS
    ),
)
