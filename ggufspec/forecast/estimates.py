"""Rates over prompts, with intervals that know both the spread of prompts and the costs' errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ggufspec import stats
from ggufspec.forecast.exposure import Exposure, Values
from ggufspec.stats import Estimate

_Z95 = 1.959964


def rates_of(runs: Sequence[Exposure], costs: Values) -> dict[str, float]:
    """Return each prompt's tokens per second."""
    return {run.prompt_id: run.tokens / float(run.paid @ costs) for run in runs}


def sensitivity(runs: Sequence[Exposure], costs: Values, errors: Values) -> Values:
    """Return each point's contribution to the standard error of the mean log rate, to first order.

    A rate's logarithm falls by a point's share of the time for every per cent that the point is larger, so
    contributions of the same point to two rates may be subtracted before they are squared.
    """
    gradient = np.mean([run.paid / float(run.paid @ costs) for run in runs], axis=0)
    return np.asarray(gradient * errors, dtype=np.float64)


def estimate(rates: Mapping[str, float], contributions: Values) -> Estimate:
    """Join the spread over prompts, as a bench without repeats has it, with that of the costs.

    A single prompt tells no spread, and then there is no interval.
    """
    own = stats.mean_rate({(name, 0): rate for name, rate in rates.items()})
    assert own is not None
    if own.lo is None or own.hi is None:
        return own
    costs = _Z95 * float(np.linalg.norm(contributions))
    half = math.hypot(math.log(own.hi / own.value), costs)
    return Estimate(value=own.value, lo=own.value * math.exp(-half), hi=own.value * math.exp(half))
