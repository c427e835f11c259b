"""How many more runs a requested precision needs, by the same model as the interval's."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ggufspec.stats.cells import Cell
from ggufspec.stats.effects import Components, Effect, paired_effect
from ggufspec.stats.estimates import quantile

_MOST = {"prompts": 100_000, "loads": 1000}


@dataclass(frozen=True, kw_only=True)
class Needed:
    """The size of a bench that reaches a precision: repeats of its prompts, or else more prompts.

    Both count from the start, not on top. ``repeats`` is None where no number of repeats would do, because
    the speed-up differs too much from prompt to prompt (or because a single repeat cannot tell); ``prompts``
    then says how many, repeated as often as now. Both are None where nothing can be said.
    """

    repeats: int | None
    prompts: int | None


def needed(rates: Mapping[Cell, float], baseline: Mapping[Cell, float], *, precision: float) -> Needed:
    """Estimate what brings the speed-up's relative half width down to ``precision`` (0.02 for ±2 %).

    Repeats are given up for new prompts only where even the least plausible difference between prompts is
    too much for any number of repeats. Each repeat is assumed to have a load of its own.
    """
    effect = paired_effect(rates, baseline)
    repeats = len({repeat for _, repeat in rates.keys() & baseline.keys()})
    return (
        Needed(repeats=None, prompts=None)
        if effect is None
        else needed_for(effect, repeats, precision=precision)
    )


def expected_width(components: Components, *, prompts: int, loads: int) -> float:
    """Return half of the expected 95 % interval of a mean of logarithms, for a bench of another size.

    Args:
        components: as estimated from a bench. A level that it has only once stays as often.
        prompts: how many prompts (or conversations).
        loads: how many loads of each arm (or repeats, where each run has a process of its own).
    """
    residual = (components.residual or 0.0) / (prompts * loads)
    parts = [
        ((components.prompt or 0.0) / prompts, prompts - 1),
        ((components.load or 0.0) / loads, loads - 1),
    ]
    levels = [(variance + residual, degrees) for variance, degrees in parts if variance > 0]
    left = ((prompts - 1) * (loads - 1)) or max(prompts, loads) - 1
    levels.append((abs(1 - len(levels)) * residual, left))
    variance = sum(part for part, _ in parts) + residual
    if variance <= 0 or left <= 0:
        return 0.0
    spread = sum(part / degrees for part, degrees in levels)
    return quantile(variance / spread) * math.sqrt(variance)


def needed_for(effect: Effect, repeats: int, *, precision: float) -> Needed:
    """Estimate the same from a comparison and its number of repeats."""
    components, half = effect.components, effect.half_width()
    if half is None:
        return Needed(repeats=None, prompts=None)
    requested = math.asinh(precision)
    if half <= requested:
        return Needed(repeats=repeats, prompts=None)
    prompts, loads = components.prompts, components.loads
    for assumed in (components, _least_plausible(components)) if loads > 1 else ():
        enough = _smallest_size(assumed, requested / half, more="loads")
        if enough is not None:
            return Needed(repeats=math.ceil(enough * repeats / loads), prompts=None)
    enough = _smallest_size(components, requested / half, more="prompts") if prompts > 1 else None
    return Needed(repeats=None, prompts=enough)


def _smallest_size(components: Components, share: float, *, more: Literal["prompts", "loads"]) -> int | None:
    """Return how many prompts or loads bring the width down to a share of the present; None for too many."""
    now = {"prompts": components.prompts, "loads": components.loads}
    sizes = range(now[more], _MOST[more] + 1)

    def narrowness(size: int) -> float:
        return -expected_width(components, **{**now, more: size})

    index = bisect_left(sizes, share * narrowness(now[more]), key=narrowness)
    return sizes[index] if index < len(sizes) else None


def _least_plausible(components: Components) -> Components:
    """Return components with the least difference between prompts that chance leaves plausible.

    It is the estimate less 1.645 standard deviations of the difference of two mean squares (Searle, Casella
    and McCulloch 1992, "Variance Components", section 3.6).
    """
    if not components.prompt or components.residual is None:
        return components
    loads, residual = components.loads, components.residual
    square, degrees = loads * components.prompt + residual, components.prompts - 1
    error = math.sqrt(2 * square**2 / degrees + 2 * residual**2 / (degrees * (loads - 1))) / loads
    return replace(components, prompt=max(components.prompt - 1.645 * error, 0.0))
