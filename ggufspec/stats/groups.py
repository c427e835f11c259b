"""Do groups of prompts differ in a log ratio, or do their repeats scatter as much?"""

from __future__ import annotations

import numpy as np

from ggufspec.stats.cells import Values


def p_of_equal_groups(logs: Values) -> float | None:
    """Return the chance of groups that differ as much if all of them had the same mean: an F test.

    Repeats are blocks: what changes all groups of a repeat alike is no part of the error.

    Args:
        logs: mean logarithm of each group in each repeat, shape (groups, repeats), without gaps.

    Returns:
        The chance, 0 to 1; None with fewer than two groups or repeats, or where repeats do not scatter.
    """
    groups, repeats = logs.shape
    if groups < 2 or repeats < 2:
        return None
    of_groups = logs.mean(axis=1, keepdims=True)
    left = logs - of_groups - logs.mean(axis=0, keepdims=True) + logs.mean()
    degrees = groups - 1, (groups - 1) * (repeats - 1)
    residual = float(np.sum(left**2)) / degrees[1]
    if residual <= 1e-18:  # rounding alone
        return None
    from scipy import special

    square = repeats * float(np.sum((of_groups - logs.mean()) ** 2)) / degrees[0]
    return float(special.fdtrc(*degrees, square / residual))
