"""Student's t distribution with any degrees of freedom ("Student" 1908, Biometrika 6:1-25)."""

from __future__ import annotations

import math
from functools import lru_cache

_CLOSE = 1e-14


def t_tail(value: float, degrees: float) -> float:
    """Return the chance that t exceeds a value.

    Half of the incomplete beta function I(x; ν/2, 1/2) at x = ν/(ν + t²) (Abramowitz and Stegun 1964,
    26.7.1).
    """
    if value < 0:
        return 1 - t_tail(-value, degrees)
    return _incomplete_beta(degrees / (degrees + value * value), degrees / 2, 0.5) / 2


@lru_cache(maxsize=4096)
def t_quantile(tail: float, degrees: float) -> float:
    """Return the value that t exceeds with the chance ``tail``, at most 0.5; good to ten digits."""
    low, high = 0.0, 1.0
    while t_tail(high, degrees) > tail:
        low, high = high, high * 2
    while high - low > 1e-11 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, degrees) > tail else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I(x; a, b) by its continued fraction (Abramowitz and Stegun 1964, 26.5.8; Lentz's method)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(1 - x, b, a)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta) / a
    above, below = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction, factor, step = below, 0.0, 0
    while abs(factor - 1) > _CLOSE:
        step += 1
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            above, below = 1 + term / above, 1 / (1 + term * below)
            factor = above * below
            fraction *= factor
    return front * fraction
