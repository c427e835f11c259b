"""Figures as people read them, the same in every table and sentence."""

from __future__ import annotations

from collections.abc import Callable

from ggufspec.arms import Arm
from ggufspec.stats import Estimate


def spread(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    """Return a value with its interval in brackets; nothing for nothing."""
    if estimate is None:
        return ""
    if estimate.lo is None or estimate.hi is None:
        return show(estimate.value)
    return f"{show(estimate.value)} [{show(estimate.lo)}, {show(estimate.hi)}]"


def layers(arm: Arm) -> str:
    """Return how many layers of each model went to the GPU, as far as that is known."""
    return " + ".join(
        str(each.offloaded) if each.total is None else f"{each.offloaded}/{each.total}"
        for each in (arm.layers, arm.draft_layers)
        if each
    )
