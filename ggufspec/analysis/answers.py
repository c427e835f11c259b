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
    cells = [cell for cell in arm.rates if cell in baseline.rates]
    named = {spec.prompt.id: spec.prompt.category for spec in arm.good.specs}
    categories = {name for name in named.values() if name is not None}
    group_of = {prompt: named.get(prompt) or prompt for prompt in named} if len(categories) > 1 else None
    counting, measured = (
        _mean_logs(cells, rates, others, group_of)
        for rates, others in ((arm.rates, baseline.rates), (arm.measured, baseline.measured))
    )
    return _differing(counting, measured)


def _mean_logs(
    cells: Sequence[stats.Cell],
    rates: stats.Rates,
    baseline: stats.Rates,
    group_of: Mapping[str, str] | None,
) -> dict[str, dict[int, float]]:
    """Return the mean log ratio of each group of prompts in each repeat; without groups, of each prompt."""
    logs: dict[str, dict[int, list[float]]] = {}
    for prompt, repeat in cells:
        name = prompt if group_of is None else group_of[prompt]
        ratio = rates[prompt, repeat] / baseline[prompt, repeat]
        logs.setdefault(name, {}).setdefault(repeat, []).append(math.log(ratio))
    return {name: {repeat: fmean(of) for repeat, of in repeats.items()} for name, repeats in logs.items()}


def _differing(
    counting: Mapping[str, Mapping[int, float]], measured: Mapping[str, Mapping[int, float]]
) -> tuple[TextGain, ...]:
    """Return the gains of groups, if the extremes differ.

    Args:
        counting: group -> repeat -> mean log ratio, of the rates that count.
        measured: the same of all runs as measured. They are tested: a run that was clipped has no residual,
            so that repeats seem to scatter less than they do.
    """
    gains = [TextGain(name=name, ratio=math.exp(fmean(logs.values()))) for name, logs in counting.items()]
    gains.sort(key=lambda gain: -gain.ratio)
    if len(gains) < 2 or gains[0].ratio < _LEAST_GAP * gains[-1].ratio:
        return ()
    shared = sorted(set.intersection(*(set(logs) for logs in measured.values())))
    table = np.array([[logs[repeat] for repeat in shared] for logs in measured.values()])
    p_value = stats.p_of_equal_groups(table) if shared else None
    return tuple(gains) if p_value is not None and p_value < _ALPHA else ()
