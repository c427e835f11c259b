"""Whether the answer depends on the text: speed-ups of categories, or of prompts, that truly differ, pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from ggufspec import stats
from ggufspec.analysis.arm import Arm

_LEAST_GAP = 1.1  # of the largest over the smallest speed-up: a smaller gap changes no choice
_ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class TextGain:
    """The speed-up on the prompts of a category, or on a prompt; ``ratio`` is their geometric mean."""

    name: str
    ratio: float


def differing_gains(arm: Arm, baseline: Arm | None = None) -> tuple[TextGain, ...]:
    """Return the speed-ups by category, the largest first, where the texts truly differ; otherwise nothing.

    They do where the largest is at least a tenth above the smallest, and they differ significantly by more
    than their repeats scatter. Prompts are fixed: this is about these texts. Without two categories, prompts
    are compared: of files, each is a prompt of its own name.

    Args:
        arm: an arm that drafts.
        baseline: what it is compared with; by default its own.
    """
    baseline = baseline or arm.baseline
    if baseline is None:
        return ()
    alone = baseline.rates
    logs = {cell: math.log(rate / alone[cell]) for cell, rate in arm.rates.items() if cell in alone}
    named = {spec.prompt.id: spec.prompt.category for spec in arm.good.specs}
    categories = {name for name in named.values() if name is not None}
    group_of = {prompt: named.get(prompt) or prompt for prompt in named} if len(categories) > 1 else None
    groups: dict[str, dict[int, list[float]]] = {}
    for (prompt, repeat), value in logs.items():
        name = prompt if group_of is None else group_of[prompt]
        groups.setdefault(name, {}).setdefault(repeat, []).append(value)
    return _differing(groups)


def _differing(groups: Mapping[str, Mapping[int, Sequence[float]]]) -> tuple[TextGain, ...]:
    """Return the gains of groups of log ratios by repeat, if the extremes differ."""
    means = {
        name: {repeat: fmean(values) for repeat, values in by_repeat.items()}
        for name, by_repeat in groups.items()
    }
    gains = [TextGain(name=name, ratio=math.exp(fmean(logs.values()))) for name, logs in means.items()]
    gains.sort(key=lambda gain: -gain.ratio)
    if len(gains) < 2 or gains[0].ratio < _LEAST_GAP * gains[-1].ratio:
        return ()
    shared = sorted(set.intersection(*(set(logs) for logs in means.values())))
    table = np.array([[logs[repeat] for repeat in shared] for logs in means.values()])
    p_value = stats.p_of_equal_groups(table) if shared else None
    return tuple(gains) if p_value is not None and p_value < _ALPHA else ()
