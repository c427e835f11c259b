"""Rows of categories and of single prompts, and the sentence that the answer depends on the text.

Three categories of four prompts; the noise is that of ``core``. A category's interval is for other prompts of
its kind, a single prompt's for further repeats of it. The sentence compares these prompts as they are: it is
false where all of them gain alike.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from ggufspec.analysis import arms, differing_gains
from ggufspec.report.rows.runs import ArmOnPrompts
from interval_paths.core import Scenario, make_bench, simulate_arms
from interval_paths.paths import Outcome, Path, judge_row

_NAMES = ("code", "prose", "table")
_OF_PROMPTS = tuple(name for name in _NAMES for _ in range(4))


def simulate(scenario: Scenario, what: str, seed: int) -> Outcome:
    """Return what a row says that is drawn at random, or the sentence.

    Args:
        scenario: of twelve prompts.
        what: ``category``, ``prompt`` or ``sentence``.
        seed: of the random numbers.
    """
    random = np.random.default_rng(seed)
    simulated, effects = simulate_arms(scenario, random)
    named = [replace(arm, categories=_OF_PROMPTS) for arm in simulated]
    arm = arms.group(make_bench(scenario, named))[1]
    truth = math.log(scenario.truth)
    if what == "sentence":
        return Outcome(false_verdict=bool(differing_gains(arm)))
    assert arm.baseline is not None
    if what == "category":
        row = [*ArmOnPrompts.by_category(arm)][int(random.integers(len(_NAMES)))]
        return judge_row(row.judgement, truth)
    number = int(random.integers(scenario.prompts))
    return judge_row(arm.judge(arm.baseline, {f"p{number:03}"}), truth + float(effects[number]))


_DESIGNS = [
    Scenario(prompts=12, repeats=repeats, load=0.01, own_processes=own, spread=spread, truth=1.0)
    for own in (False, True)
    for repeats in (3, 5)
    for spread in (0.0, 0.06)
]
NOISY = Scenario(prompts=12, repeats=3, load=0.03, slow=0.1, truth=1.0)

PATHS = (
    *(
        Path(name=named.title, simulate=partial(simulate, scenario, what))
        for what, name in (("category", "one category of 4"), ("prompt", "one prompt"))
        for scenario in _DESIGNS
        for named in (replace(scenario, name=name),)
    ),
    *(
        Path(
            name=replace(scenario, name="“depends on the text”, all alike").title,
            simulate=partial(simulate, scenario, "sentence"),
        )
        for scenario in (NOISY, replace(NOISY, own_processes=True))
    ),
)
