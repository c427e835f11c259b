"""95 % intervals of a mean over prompts of medians over repeats: bootstrap, Student's t, order statistics.

The bootstrap is our own because ``scipy.stats.bootstrap`` resamples one level only, and its methods have no
studentised interval: prompts are drawn here, then the repeats of each drawn prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

from ggufspec.stats.cells import Values, middle

# Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook of
# Statistical Methods, section 1.3.6.7.2); beyond that the expansion in `t95` is exact to 0.01 %.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
Z95 = 1.959964
"""Two-sided 95 % quantile of the normal distribution."""

_RESAMPLES = 2000
_SEED = 20240419
_MIN_PROMPTS = 5  # fewer make too few distinct resamples
_MIN_REPEATS = 6  # of a single prompt: five values' extremes hold their median in 93.75 % only
_WIDEST = 100.0  # in logarithms: a factor of 1e43 says "unknown", and stays finite


def centre(groups: Sequence[Values]) -> float:
    """Return the mean over prompts of the medians of their repeats."""
    return float(np.mean([middle(group) for group in groups]))


def interval(groups: Sequence[Values]) -> tuple[float, float] | None:
    """Return how far the 95 % interval of ``centre`` reaches below and above it, both >= 0.

    The units are the prompts, and with a single prompt its repeats. Five prompts or more with repeats: the
    two-level bootstrap. Fewer prompts, or none repeated (there is no second level): Student's t over the
    prompts' medians. A single prompt: order statistics, or with fewer than six repeats Student's t.

    Args:
        groups: for each prompt the sorted logarithms of its repeats, at least one prompt.

    Returns:
        Distances in logarithms, or None with a single unit.
    """
    if len(groups) == 1:
        only = groups[0]
        if len(only) >= _MIN_REPEATS:
            return _order_statistics(only)
        return None if len(only) < 2 else _both(_students(only))
    medians = np.array([middle(group) for group in groups])
    if len(groups) < _MIN_PROMPTS or max(map(len, groups)) == 1:
        return _both(_students(medians))
    return _both(_bootstrap(groups, medians))


def t95(degrees: int) -> float:
    """Return the two-sided 95 % quantile of Student's t (Abramowitz and Stegun 1964, 26.7.5 above 30)."""
    if degrees <= len(_T95):
        return _T95[degrees - 1]
    z, first = Z95, (Z95**3 + Z95) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def _both(half: float) -> tuple[float, float]:
    return min(half, _WIDEST), min(half, _WIDEST)


def _students(values: Values) -> float:
    """Return half of Student's 95 % interval of a mean ("Student" 1908, Biometrika 6:1-25)."""
    return float(t95(len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def _bootstrap(groups: Sequence[Values], medians: Values) -> float:
    """Return half of the symmetric studentised two-level bootstrap interval.

    Prompts are drawn with replacement, then repeats within each drawn prompt (Davison and Hinkley 1997,
    "Bootstrap Methods and their Application", section 3.8). Drawing both levels adds the repeats' variance
    a second time; each resample's mean is therefore taken in units of its own standard error, which grows
    alike (bootstrap-t: section 5.2 there; Hesterberg 2015, doi:10.1080/00031305.2015.1089789). The 95 %
    quantile of the absolute values serves both sides (Hall 1988, "On symmetric bootstrap confidence
    intervals", Journal of the Royal Statistical Society B 50:35-45).
    """
    error = float(np.std(medians, ddof=1)) / np.sqrt(len(medians))
    if error <= np.finfo(float).eps * np.abs(medians).max():
        return 0.0
    drawn = _resampled_medians(groups)
    errors = drawn.std(axis=1, ddof=1) / np.sqrt(len(medians))
    usable = errors > 1e-6 * error  # a resample of one prompt alone has no error to measure by
    distances = np.abs(drawn.mean(axis=1) - medians.mean())[usable] / errors[usable]
    return float(np.quantile(distances, 0.95) * error)


def _resampled_medians(groups: Sequence[Values]) -> Values:
    """Return the prompts' medians in every resample, shape (resamples, prompts).

    The median of R draws with replacement from R sorted values is found without drawing them: its rank
    follows the middle one or two of R ordered uniforms, and those are beta distributed (David and Nagaraja
    2003, "Order Statistics", chapter 2). Each draw is used together with its mirror image, so that an
    interval does not depend on which side is the baseline.
    """
    random = np.random.default_rng(_SEED)
    padded = np.array([np.resize(group, max(map(len, groups))) for group in groups])
    half = random.integers(0, len(groups), (_RESAMPLES // 2, len(groups)))
    sizes = np.array([len(group) for group in groups])[half]
    below = (sizes + 1) // 2
    lower = random.beta(below, sizes - below + 1)
    gap = random.random(lower.shape) ** (1 / np.maximum(sizes - below, 1))
    upper = np.where(sizes % 2 == 1, lower, 1 - (1 - lower) * gap)
    prompts, doubled = np.concatenate((half, half)), np.concatenate((sizes, sizes))
    low = _ranks(np.concatenate((lower, 1 - upper)), doubled)
    high = _ranks(np.concatenate((upper, 1 - lower)), doubled)
    chosen: Values = (padded[prompts, low] + padded[prompts, high]) / 2
    return chosen


def _ranks(uniform: Values, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.minimum((uniform * sizes).astype(np.int64), sizes - 1)


def _order_statistics(values: Values) -> tuple[float, float]:
    """Return the distribution-free interval of a median of n >= 6 sorted values.

    Two symmetric pairs of order statistics hold the median with just over and just under 95 %; between them
    it is interpolated (Hettmansperger and Sheather 1986, "Confidence intervals based on interpolated order
    statistics", Statistics & Probability Letters 4:75-79). It is what the percentile bootstrap of a median
    tends to, without its coarse steps.
    """
    n = len(values)
    outside = np.cumsum([comb(n, i) for i in range(n // 2)]) / 2.0**n
    holds = 1 - 2 * outside  # holds[k - 1]: the chance that the k-th values from both ends hold the median
    k = int(np.count_nonzero(holds >= 0.95))
    narrower = holds[k] if k < len(holds) else 0.0
    excess = (holds[k - 1] - 0.95) / (holds[k - 1] - narrower)
    share = (n - k) * excess / (k + (n - 2 * k) * excess)
    lo = (1 - share) * values[k - 1] + share * values[k]
    hi = (1 - share) * values[n - k] + share * values[n - k - 1]
    median = float(np.median(values))
    return max(median - float(lo), 0.0), max(float(hi) - median, 0.0)
