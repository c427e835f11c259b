"""What acceptance is worth on average: tokens per round and the speed-up, by the paper's formulas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

import numpy as np

from ggufspec.stats.sampling.chain import Probabilities


def expected_accepted(alphas: Probabilities | Sequence[float]) -> float:
    """Return how many of n drafted tokens are accepted on average, Σ_i Π_{j<=i} α_j.

    Args:
        alphas: (n,), the chance at each position given that those before it were accepted.
    """
    rates = np.asarray(alphas, dtype=np.float64)
    _check_rates(rates)
    return float(rates.cumprod().sum())


def closed_form(alpha: float, gamma: int) -> float:
    """Return the tokens per round, the target's own included, when each draft is accepted with α.

    Equation 1 of Leviathan et al., (1 - α^(γ+1)) / (1 - α), as the sum of powers that it stands for: that is
    γ + 1 at α = 1 and loses no digits near it. α is taken to be the same everywhere and independent.
    """
    _check_rates([alpha])
    if gamma < 0:
        raise ValueError(f"the draft size must be 0 or more, not {gamma}")
    return fsum(alpha**i for i in range(gamma + 1))


def closed_form_speedup(alpha: float, gamma: int, cost_ratio: float, verify_ratio: float = 1.0) -> float:
    """Return tokens per second over those of the target alone.

    Theorem 3.8 of Leviathan et al., (1 - α^(γ+1)) / ((1 - α)(γc + 1)), with the 1 made free.

    Args:
        alpha: chance of acceptance, the same everywhere.
        gamma: draft size.
        cost_ratio: c, the drafter's time for one token over the target's.
        verify_ratio: the target's time for γ + 1 tokens at once over its time for one. The paper takes it
            to be 1, which memory-bound hardware comes near to.
    """
    if not (cost_ratio >= 0.0 and verify_ratio > 0.0):
        raise ValueError(f"costs must be positive: {cost_ratio} per draft, {verify_ratio} per verification")
    return closed_form(alpha, gamma) / (gamma * cost_ratio + verify_ratio)


def _check_rates(rates: Iterable[float]) -> None:
    for rate in rates:
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"a chance of acceptance lies between 0 and 1: {rate}")
