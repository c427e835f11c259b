"""Benches in which one run in twenty takes 30 % longer, on top of the noise of ``core``."""

from __future__ import annotations

from dataclasses import replace

from interval_paths.core import Scenario, path, simulate

SHARE = 0.05

_DESIGNS = [
    Scenario(
        prompts=prompts, repeats=repeats, load=0.01, slow=SHARE, own_processes=own, name=f"{SHARE:.0%} slow"
    )
    for own in (False, True)
    for prompts, repeats in ((8, 5), (8, 3), (4, 3), (8, 10))
]
_DIFFERING = [replace(scenario, spread=0.06) for scenario in _DESIGNS if scenario.prompts == 8]
_EQUAL = [replace(scenario, truth=1.0, name=f"{scenario.name}, A/A") for scenario in _DESIGNS]
_POWER = [
    replace(scenario, truth=1.05, name=f"{scenario.name}, true 1.05")
    for scenario in _DESIGNS
    if (scenario.prompts, scenario.repeats) == (8, 5)
]

PATHS = (
    *(path(scenario, simulate) for scenario in (*_DESIGNS, *_DIFFERING, *_EQUAL)),
    *(path(scenario, simulate, least_found=0.75) for scenario in _POWER),
)
