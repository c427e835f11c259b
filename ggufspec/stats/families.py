"""Several comparisons with one baseline, taken together: intervals that hold for all of them at once.

Whoever looks for the best of twenty arms finds one that was lucky. So the interval of the chosen one is that
of a family: all arms that share the baseline contain their true values together in 95 of 100 benches
(Dunnett 1955, Journal of the American Statistical Association 50:1096-1121). And its value is drawn towards
the mean of all as far as chance alone explains how they differ (Lindley's form of James and Stein's
estimator: Efron and Morris 1975, Journal of the American Statistical Association 70:311-319).

With three or five loads, an arm's own standard error has few degrees of freedom, which the quantile of a
family makes expensive. Arms of one bench are alike, so their variances are moderated: each is averaged with
the common one, by as many degrees of freedom as the spread of all variances allows (Smyth 2004, Statistical
Applications in Genetics and Molecular Biology 3:3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ggufspec.stats.cells import Values
from ggufspec.stats.estimates import CONFIDENCE

SHARED_BASELINE = 0.5
"""Correlation of two arms' log ratios: both have the baseline's runs, and as many of their own."""

_NODES = 48  # of each Gauss quadrature; 96 change no quantile by more than 1e-4


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A log ratio to the common baseline, with its standard error and Student's degrees of freedom."""

    value: float
    error: float
    degrees: float


@dataclass(frozen=True, kw_only=True)
class Adjusted:
    """A log ratio of a family: shrunk, with an interval that holds together with those of all others.

    ``p_value`` is that of the largest of so many differences, if no arm differs from the baseline.
    """

    value: float
    lo: float
    hi: float
    p_value: float


def adjust(family: Sequence[Comparison]) -> tuple[Adjusted, ...]:
    """Return the comparisons of a family, each with what is left of it after the choice among all.

    Args:
        family: of one arm each, all with the same baseline. One alone stays as it is.
    """
    if not family:
        return ()
    values, errors, degrees = (
        np.array([getattr(member, name) for member in family]) for name in ("value", "error", "degrees")
    )
    variances, freedom = moderate(errors**2, degrees, correlation=SHARED_BASELINE)
    shrunk = _shrink(values, variances)
    adjusted = []
    for index, comparison in enumerate(family):
        error, df = math.sqrt(variances[index]), float(freedom[index])
        half = family_quantile(len(family), df) * error
        adjusted.append(
            Adjusted(
                value=float(shrunk[index]),
                lo=comparison.value - half,
                hi=comparison.value + half,
                p_value=family_tail(abs(comparison.value) / error, len(family), df),
            )
        )
    return tuple(adjusted)


def moderate(variances: Values, degrees: Values, *, correlation: float = 0.0) -> tuple[Values, Values]:
    """Return variances that borrow from each other, with their degrees of freedom.

    Args:
        variances: positive estimates of the same kind.
        degrees: of freedom of each.
        correlation: of the values behind two of them; that of the variances is its square.
    """
    from scipy import special

    count, shared = len(variances), correlation**2
    if count < 2:
        return variances, degrees
    halves = degrees / 2
    logs = np.log(variances) - special.digamma(halves) + np.log(halves)
    excess = float(logs.var(ddof=1)) - (1 - shared) * float(special.polygamma(1, halves).mean())
    together = float(degrees.sum()) / (1 + (count - 1) * shared)  # what all of them know of a common variance
    if excess <= 0:
        common = float(np.average(variances, weights=degrees))
        return np.full(count, common), np.full(count, max(together, float(degrees.max())))
    prior = 2 * _inverse_trigamma(excess)
    common = math.exp(float(logs.mean()) + float(special.digamma(prior / 2)) - math.log(prior / 2))
    mixed = (prior * common + degrees * variances) / (prior + degrees)
    return mixed, np.minimum(prior + degrees, np.maximum(together, degrees))


def _inverse_trigamma(value: float) -> float:
    from scipy import optimize, special

    return float(optimize.brentq(lambda x: float(special.polygamma(1, x)) - value, 1e-4, 1 / value + 1))


def _shrink(values: Values, variances: Values) -> Values:
    count = len(values)
    if count < 4:
        return values
    middle = values.mean()
    spread = float(np.sum((values - middle) ** 2))
    chance = (count - 3) * float(variances.mean()) * (1 - SHARED_BASELINE)
    return np.asarray(middle + max(0.0, 1 - chance / spread) * (values - middle) if spread > 0 else values)


@lru_cache(maxsize=1)
def _nodes() -> tuple[tuple[Values, Values], tuple[Values, Values]]:
    """Return points and weights: of a normal distribution, and of shares, dense where errors are small."""
    normal, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    roots, root_weights = np.polynomial.legendre.leggauss(_NODES)
    steps = (roots + 1) / 2
    return (normal, weights / weights.sum()), (1 - steps**3, 1.5 * steps**2 * root_weights)


@lru_cache(maxsize=16)
def _error_quantiles(degrees: float) -> Values:
    """Return quantiles of a standard error over its expectation, at the levels of ``_nodes``.

    They take longer than the rest of ``family_tail``, which is asked a dozen times for one quantile.
    """
    from scipy import special

    _, (levels, _) = _nodes()
    return np.asarray(np.sqrt(special.chdtri(degrees, levels) / degrees))


@lru_cache(maxsize=1024)
def family_quantile(count: int, degrees: float, confidence: float = CONFIDENCE) -> float:
    """Return what the largest of ``count`` absolute t with one baseline exceeds with 1 - confidence."""
    from scipy import optimize

    def miss(value: float) -> float:
        return family_tail(value, count, degrees) - (1 - confidence)

    top = 4.0
    while miss(top) > 0:
        top *= 2
    return float(optimize.brentq(miss, 0.0, top, xtol=1e-5))


def family_tail(value: float, count: int, degrees: float) -> float:
    """Return the chance that the largest of ``count`` absolute t with one baseline exceeds a value.

    They share the baseline (correlation 1/2) and their standard error. The integral is over the baseline and
    over the standard error, which is that of a chi distribution (Dunnett 1955, formula 3).
    """
    from scipy import special

    (baseline, weights), (_, level_weights) = _nodes()
    scales = _error_quantiles(degrees)
    root = math.sqrt(1 - SHARED_BASELINE)
    limits, shift = value * scales[:, None] / root, math.sqrt(SHARED_BASELINE) * baseline[None, :] / root
    inside = (special.ndtr(limits - shift) - special.ndtr(-limits - shift)) ** count
    return max(0.0, 1 - float(level_weights @ inside @ weights))
