"""Does a category of prompts need a configuration of its own, or do its prompts differ by chance?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ggufspec.stats import Cell

_EXACT = 10_000  # ways to choose the prompts of a category: up to so many are all tried
_SEED = 20240419
_ALPHA = 0.05

Values = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


def categories_that_differ(
    leader: Mapping[Cell, float], others: Sequence[Mapping[Cell, float]], categories: Mapping[str, str]
) -> frozenset[str]:
    """Return the categories in which another arm gains significantly more on the leader than elsewhere.

    The interaction of arm and category, by a permutation test: if categories made no difference, any other
    prompts of the same number could be those of the category (Good 2005, "Permutation, Parametric and
    Bootstrap Tests of Hypotheses", chapter 3). The statistic is the largest of all arms, so that it does not
    matter how many there are. Several categories: Holm's adjustment.

    Args:
        leader: tokens/s of the best arm over all prompts, by (prompt id, repeat).
        others: the same of the other arms, the target alone among them.
        categories: prompt id -> category.
    """
    logs = [_mean_logs(rates) for rates in (leader, *others)]
    prompts = [prompt for prompt in categories if all(prompt in by_prompt for by_prompt in logs)]
    if not others or not prompts:
        return frozenset()
    best, *rest = ([by_prompt[prompt] for prompt in prompts] for by_prompt in logs)
    gains = np.array(rest) - np.array(best)  # (arms, prompts)
    p_values = {
        category: _p_value(gains, np.array([categories[prompt] == category for prompt in prompts]))
        for category in sorted({categories[prompt] for prompt in prompts})
    }
    return frozenset(significant(p_values, alpha=_ALPHA))


def _mean_logs(rates: Mapping[Cell, float]) -> dict[str, float]:
    by_prompt: dict[str, list[float]] = {}
    for (prompt, _), rate in rates.items():
        by_prompt.setdefault(prompt, []).append(math.log(rate))
    return {prompt: float(np.mean(values)) for prompt, values in by_prompt.items()}


def _p_value(gains: Values, inside: NDArray[np.bool_]) -> float:
    """Return how often the same number of any prompts shows a gain as large as those of the category."""
    n, size = len(inside), int(inside.sum())
    if size in {0, n}:
        return 1.0
    exact = math.comb(n, size) <= _EXACT
    if exact:
        chosen = np.zeros((math.comb(n, size), n))
        for row, indices in enumerate(combinations(range(n), size)):
            chosen[row, list(indices)] = 1.0
    else:
        random = np.random.default_rng(_SEED)
        chosen = random.permuted(np.tile(inside.astype(float), (_EXACT - 1, 1)), axis=1)
    observed = _largest(gains, inside[None].astype(float))[0]
    as_large = int(np.count_nonzero(_largest(gains, chosen) >= observed - 1e-12))
    return as_large / len(chosen) if exact else (as_large + 1) / _EXACT


def _largest(gains: Values, chosen: Values) -> Values:
    """Return for each choice of prompts the largest gain of an arm inside over that outside."""
    sizes = chosen.sum(axis=1)
    inside = chosen @ gains.T
    outside = gains.sum(axis=1) - inside
    means = inside / sizes[:, None] - outside / (chosen.shape[1] - sizes)[:, None]
    return np.asarray(means.max(axis=1), dtype=np.float64)


def significant(p_values: Mapping[K, float], *, alpha: float) -> list[K]:
    """Return what passes the step-down test of Holm 1979, "A simple sequentially rejective multiple test"."""
    passed: list[K] = []
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > alpha / (len(p_values) - rank):
            break
        passed.append(name)
    return passed
