"""Do texts follow the target? Bounds on the share of divergent texts, and a test of sampled tokens.

Where tokens were drawn from known distributions, the place of each token in the cumulative distribution,
randomised within the token's own probability, is uniform and independent of all others: the probability
integral transform (Rosenblatt 1952), for discrete values as by Czado, Gneiting and Held 2009 (Biometrics 65,
1254-1261). Tokens are ordered by falling probability, so that a text of another temperature, or of another
sampler, has too many tokens in some part of the range. Pearson's chi-square test compares ``BINS`` equal
parts of the range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BINS = 10
"""Parts of the range from 0 to 1."""

LEAST_TOKENS = 5 * BINS
"""Fewest tokens to test: a chi-square test wants five expected in each part (Cochran 1954)."""

_LEVEL = 0.95


def highest_share(n_found: int, judged: int) -> float:
    """Return the highest share of something that is compatible with how often it was found.

    It is the one-sided exact bound of 95 % (Clopper and Pearson 1934). With none found it is close to
    3 / judged, the rule of three. It holds for what is found independently: texts, but seldom their tokens.

    Args:
        n_found: texts with a divergent token, or divergent tokens.
        judged: all of them, 1 or more.
    """
    from scipy import special  # takes a quarter of a second to import, and few commands need it

    return 1.0 if n_found >= judged else float(special.betaincinv(n_found + 1, judged - n_found, _LEVEL))


def place_token(probabilities: NDArray[np.float64], token: int, uniform: float) -> float | None:
    """Return a token's place in the cumulative distribution, from 0 to 1; None for an impossible token.

    Args:
        probabilities: (vocab,), from which the token should have been drawn.
        token: which one was drawn.
        uniform: from 0 to 1, drawn independently of everything else.
    """
    probability = float(probabilities[token])
    if probability <= 0.0:
        return None
    likelier = float(probabilities[probabilities > probability].sum())
    likelier += probability * int(
        np.count_nonzero(probabilities[:token] == probability)
    )  # of equals the lower token comes first
    return min(likelier + uniform * probability, 1.0)


def count_places(positions: Sequence[float]) -> tuple[int, ...]:
    """Return how many places lie in each of ``BINS`` equal parts of the range from 0 to 1."""
    counts, _ = np.histogram(np.asarray(positions), bins=BINS, range=(0.0, 1.0))
    return tuple(counts.tolist())


def uniform_p_value(counts: Sequence[int]) -> float | None:
    """Return the probability that uniform places are spread at least as unevenly; None for too few tokens."""
    total = sum(counts)
    if total < LEAST_TOKENS:
        return None
    from scipy import special

    expected = total / len(counts)
    chi_square = sum((count - expected) ** 2 for count in counts) / expected
    return float(special.chdtrc(len(counts) - 1, chi_square))
