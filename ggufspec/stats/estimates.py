"""Each prompt's rate, the mean over prompts with its interval, and quantiles."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Cell, log_rates, log_ratios, middle
from ggufspec.stats.student import t_quantile

ERROR = 0.05
"""The chance that an interval misses the true value, or any of those that are to hold together."""

CONFIDENCE = 1 - ERROR
"""Of every interval, unless another is asked for."""

Z95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""


def per_prompt(rates: Mapping[Cell, float], baseline: Mapping[Cell, float] | None = None) -> dict[str, float]:
    """Return each prompt's geometric mean rate over its repeats.

    With a baseline: the same of how many times faster ``rates`` are in the same cell.
    """
    logs = log_rates(rates) if baseline is None else log_ratios(rates, baseline)
    return {prompt: math.exp(of_prompt.mean()) for prompt, of_prompt in logs.items()}


def median_ratio(rates: Mapping[Cell, float], baseline: Mapping[Cell, float]) -> float | None:
    """Return the geometric mean over prompts of the medians of their ratios; None without a common cell.

    A few disturbed runs do not move it: a check of the mean, which has the interval.
    """
    logs = log_ratios(rates, baseline).values()
    return math.exp(float(np.mean([middle(of_prompt) for of_prompt in logs]))) if logs else None


def mean_over_prompts(rates: Mapping[str, float]) -> Estimate:
    """Return the geometric mean of one rate for each prompt, with Student's interval over prompts.

    For rates that were computed, not measured: nothing but the choice of prompts varies them.

    Args:
        rates: positive rates by prompt, at least one.
    """
    logs = np.log(list(rates.values()))
    mean = float(logs.mean())
    if len(logs) < 2:
        return Estimate(value=math.exp(mean), lo=None, hi=None)
    half = quantile(len(logs) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return Estimate(value=math.exp(mean), lo=math.exp(mean - half), hi=math.exp(mean + half))


def quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t, for any positive degrees of freedom."""
    return t_quantile((1 - confidence) / 2, degrees)
