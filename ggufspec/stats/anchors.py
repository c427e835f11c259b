"""Drift of the machine: the trend of an anchor's rate, beside noise that may be a slow wave.

Runs that are near in time are often alike: a machine warms up and cools, a program comes and goes. An
interval that takes the noise as independent then holds too rarely, and calls waves a trend: of 33
measurements beside a wave it holds in 83 %.

So the noise may be an Ornstein-Uhlenbeck process: two measurements have the correlation exp(-distance / τ).
Kendall's S, on which Sen's interval stands, then has a larger variance (Hamed and Rao 1998, Journal of
Hydrology 204:182-196). How long the wave is, few measurements cannot say. So the larger variance is averaged
over values of τ, each with its likelihood after the measurements; independent noise is one of them.
``scripts/validate_intervals.py`` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ggufspec.domain import Estimate
from ggufspec.stats.cells import Values
from ggufspec.stats.effects import WIDEST
from ggufspec.stats.estimates import ERROR, Z95

_MOST = (
    300  # measurements: of more, neighbours count as their mean, as time grows with the cube of their number
)
_EXACT_UP_TO = 40
_WAVES = np.array([0.5, 1.0, 2.0, 4.0])  # τ over the usual distance of measurements
_SHARES = (0.5, 0.95)  # of the noise that is a wave; the rest is independent
_LONGEST_WAVE = 0.25  # τ over the whole duration: a longer wave cannot be told from a trend
_INDEPENDENT = 0.2  # the chance of independent noise before anything is measured
_LEAST_FOR_WAVES = 7  # measurements: the interval of fewer has nearly all slopes, and holds beside waves
_SLIGHT = 1e-9  # noise below this is rounding
_BLOM = 0.375  # of the expectations of ordered normal values (Blom 1958)


def drift(times_s: Sequence[float], rates: Sequence[float]) -> Estimate | None:
    """Return the relative change of an anchor's rate from its first to its last measurement.

    The median of the slopes between all pairs of log rates, times the time from first to last (Theil 1950;
    Sen 1968, doi:10.1080/01621459.1968.10480934), with Sen's interval from the distribution of Kendall's S,
    as much wider as slow waves make it.

    Args:
        times_s: when each measurement was taken, in seconds from any origin.
        rates: its positive tokens/s.

    Returns:
        -0.05 for 5 % slower at the end; without an interval below five measurements, where none has 95 %.
        None with fewer than two different times.

    Raises:
        ValueError: a rate is not positive.
    """
    if any(not (rate > 0 and math.isfinite(rate)) for rate in rates):
        raise ValueError("a rate is a positive number")
    order = np.argsort(times_s, kind="stable")
    times, logs = np.asarray(times_s, dtype=np.float64)[order], np.log(np.asarray(rates))[order]
    duration = float(np.ptp(times)) if len(times) else 0.0
    if len(times) > _MOST:
        groups = np.array_split(np.arange(len(times)), _MOST)
        times, logs = (np.array([values[group].mean() for group in groups]) for values in (times, logs))
    first, second = np.triu_indices(len(times), 1)
    apart = times[second] != times[first]
    first, second = first[apart], second[apart]
    if not len(first):
        return None
    slopes = np.sort((logs[second] - logs[first]) / (times[second] - times[first]))
    slope = float(np.median(slopes))
    rank = _rank(len(times), len(slopes))
    estimate = Estimate.around(math.expm1(slope * duration))
    if rank is None:
        return estimate
    middle = (len(slopes) - 1) / 2
    reach = middle - rank
    if len(times) >= _LEAST_FOR_WAVES:
        deviation = _deviation(len(times)) * math.sqrt(_variance_of_waves(times, logs - slope * times))
        # the outermost slopes are far enough: seven rising values are rare, whatever the noise is
        reach = min(max(reach, (deviation + 1) / 2), middle)
    lo, hi = np.interp((middle - reach, middle + reach), np.arange(len(slopes)), slopes)
    # two measurements at nearly the same time may have any slope
    ends = np.expm1(np.clip(duration * np.array([lo, hi]), -WIDEST, WIDEST))
    return replace(estimate, lo=float(ends[0]), hi=float(ends[1]))


def _rank(n: int, slopes: int) -> int | None:
    """Return which slope, counted from 0 at either end, bounds the 95 % interval; None where none does.

    The number of discordant pairs of n independent values: exact by Mann's recursion (1945, Econometrica
    13:245-259), for many values its normal approximation.
    """
    if n <= _EXACT_UP_TO:
        chances = np.ones(1)
        for size in range(2, n + 1):
            chances = np.convolve(chances, np.full(size, 1 / size))
        count = int(np.count_nonzero(np.cumsum(chances) <= ERROR / 2))
    else:
        count = math.floor((n * (n - 1) / 2 - _deviation(n)) / 2)
    return count - 1 if 1 <= count <= (slopes + 1) // 2 else None


def _deviation(n: int) -> float:
    """Return what |S| of n independent values exceeds in 5 %, about (Kendall 1938, Biometrika 30:81-93)."""
    return Z95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _variance_of_waves(times: Values, residuals: Values) -> float:
    """Return how many times larger the variance of S is than that of independent noise, 1 or more.

    Args:
        times: of the measurements, at least two of them different.
        residuals: what a line through all leaves of their log rates.
    """
    distances = np.abs(times[:, None] - times)
    gaps = np.diff(np.unique(times))
    lengths = [length for length in _WAVES * np.median(gaps) if length <= _LONGEST_WAVE * distances.max()]
    waves = [share * np.exp(-distances / length) for length in lengths for share in _SHARES]
    noises = [correlation + np.diag(1 - correlation.diagonal()) for correlation in (0 * distances, *waves)]
    places = (times - times.mean()) / distances.max()
    values = np.column_stack((np.ones_like(places), places, _normal_scores(residuals)))
    likelihoods = np.array([_log_likelihood(correlations, values) for correlations in noises])
    # a slope is a sum of ranks, each with the weight of its place; sines: Pearson's correlation as Spearman's
    variances = np.array([places @ (6 / math.pi * np.arcsin(noise / 2)) @ places for noise in noises])
    chances = np.full(len(noises), (1 - _INDEPENDENT) / max(len(waves), 1))
    chances[0] = _INDEPENDENT
    chances *= np.exp(likelihoods - likelihoods.max())
    return float(np.average(np.maximum(variances / variances[0], 1.0), weights=chances))


def _log_likelihood(correlations: Values, values: Values) -> float:
    """Return the restricted log likelihood of a line with correlated noise of any scale.

    (Harville 1977, Journal of the American Statistical Association 72:320-338.) It does not take the line
    that was fitted for the true one, so that the noise of few values does not look too independent.

    Args:
        correlations: of the noise.
        values: what a line is of, its columns, and last the values themselves.
    """
    root = np.linalg.cholesky(correlations)
    triangle = np.linalg.qr(np.linalg.solve(root, values), mode="r")
    *line, noise = np.abs(np.diagonal(triangle))
    degrees = len(values) - len(line)
    return -float(
        np.log(root.diagonal()).sum() + np.log(line).sum() + degrees * math.log(max(noise, _SLIGHT))
    )


def _normal_scores(values: Values) -> Values:
    """Return what values of their ranks would be, were they normal: outliers then hide no wave."""
    from scipy import special

    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(special.ndtri((ranks[number] - _BLOM) / (len(values) + 1 - 2 * _BLOM)))
