"""Simulated benches: what the tests of statistics measure."""

from __future__ import annotations

import math

import numpy as np

from ggufspec.stats import Cell, Estimate

Rates = dict[Cell, float]


def grid(logs: np.ndarray[tuple[int, ...], np.dtype[np.float64]], *, scale: float = 50.0) -> Rates:
    """Rates of (prompt, repeat) from logarithms of shape (prompts, repeats)."""
    return {(f"p{p}", r): scale * math.exp(value) for (p, r), value in np.ndenumerate(logs)}


def bench(seed: int, prompts: int, repeats: int, *, between: float = 0.0, within: float = 0.02) -> Rates:
    random = np.random.default_rng(seed)
    own = random.normal(0, between, (prompts, 1))
    return grid(own + random.normal(0, within, (prompts, repeats)))


def flat(rates: Rates, value: float = 50.0) -> Rates:
    return dict.fromkeys(rates, value)


def known(estimate: Estimate | None) -> tuple[float, float, float]:
    assert estimate.lo is not None
    assert estimate.hi is not None
    return estimate.lo, estimate.value, estimate.hi
