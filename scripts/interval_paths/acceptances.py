"""What was accepted, as ``show --all`` prints it: prompts have rates and lengths, repeats are alike."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ggufspec.analysis import arms
from interval_paths import stored
from interval_paths.paths import Outcome, Path, judge
from interval_paths.stored import SimulatedArm

_REPEATS = 3
_GAMMA = 4
_FIGURES = {"accept_rate": "acceptance rate", "mean_accepted_length": "tokens/round"}


def simulate(figure: str, prompts: int, taken: tuple[float, float], seed: int) -> Outcome:
    """Return what the interval of a figure says.

    Args:
        figure: of ``AcceptanceIntervals``.
        prompts: how many there are.
        taken: parameters of the beta distribution of their rates, as accepted and rejected tokens.
        seed: of the random numbers.
    """
    random = np.random.default_rng(seed)
    rounds = random.integers(15, 60, prompts)
    accepted = random.binomial(_GAMMA * rounds, random.beta(*taken, prompts))
    counted = [
        {"n_rounds": int(n), "n_drafted": int(_GAMMA * n), "n_accepted": int(count)}
        for n, count in zip(rounds, accepted, strict=True)
    ]
    samples = {(p, r): counts for p, counts in enumerate(counted) for r in range(_REPEATS)}
    tps = random.normal(50, 1, (prompts, _REPEATS))
    arm = SimulatedArm(spec=stored.drafting(_GAMMA), tps=tps, samples=samples)
    (group,) = arms.group(stored.bench([arm], engine="binary"))
    assert group.acceptance_intervals is not None
    rate = taken[0] / sum(taken)
    truth = rate if figure == "accept_rate" else 1 + _GAMMA * rate
    return judge(getattr(group.acceptance_intervals, figure), None, math.log(truth))


PATHS = tuple(
    Path(
        name=f"{heading} {taken[0] / sum(taken):.0%}, prompts by {spread:.0%}, {prompts} prompts",
        simulate=partial(simulate, figure, prompts, taken),
    )
    for figure, heading in _FIGURES.items()
    for taken, spread in (((8, 3), 0.13), ((19, 1), 0.05), ((38, 2), 0.03), ((99, 1), 0.01))
    for prompts in (4, 8, 32)
)
