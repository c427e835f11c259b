"""Which drafted tokens are kept, and what follows them: the text stays distributed as the target's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from ggufspec.stats.sampling.chain import Probabilities, Tokens

_NO_MASS = float(np.finfo(np.float64).tiny)  # below it doubles are too coarse to draw in proportion


@dataclass(frozen=True)
class Verified:
    """What the target made of one draft.

    Attributes:
        n_accepted: how many drafted tokens it took, from the first on.
        token: the target's own token that follows them: the correction of the first refused one, or the
            bonus after a draft that was accepted as a whole. A round yields ``n_accepted + 1`` tokens.
    """

    n_accepted: int
    token: int


def verify(
    p: Probabilities, q: Probabilities, drafted: Sequence[int] | Tokens, random: np.random.Generator
) -> Verified:
    """Accept a draft's beginning and draw the token after it, so that all are distributed as p says.

    Token i is accepted with the chance min(1, p/q). After the first refusal the token comes from the
    normalised positive part of p - q, after a draft without refusal from the last row of p. Where p - q is
    positive nowhere (p and q are equal but for rounding) it comes from p.

    Args:
        p: (n + 1, vocab), the target's distributions before each drafted token and after the last.
        q: (n, vocab), the distributions from which the drafted tokens were drawn. A drafter with the
            smaller vocabulary gets zeros for the tokens that it lacks.
        drafted: (n,), n >= 0. With n = 0 this is plain sampling.
        random: one number is drawn per judged token, one for the token after them.

    Raises:
        ValueError: shapes that do not fit; a drafted token with q = 0, which cannot come from q, so that no
            rule of acceptance would keep the target's distribution; probabilities that are NaN.
    """
    if q.ndim != 2 or p.shape != (len(q) + 1, q.shape[1]) or len(drafted) != len(q):
        shapes = f"p {p.shape}, q {q.shape}, {len(drafted)} drafted"
        raise ValueError(f"a round needs p (n + 1, vocab), q (n, vocab) and n drafted tokens, not {shapes}")
    for i, token in enumerate(drafted):
        if not (0 <= token < q.shape[1] and q.item(i, token) > 0.0):
            raise ValueError(f"drafted token {token} at position {i} has no probability in q")
    for i, token in enumerate(drafted):
        # multiplied, not divided: nothing overflows, and a token with p = 0 is never accepted
        accepted = random.random() * q.item(i, token) < p.item(i, token)
        if not accepted:
            excess = np.maximum(p[i] - q[i], 0.0).cumsum()
            return Verified(i, draw(p[i], random) if excess[-1] < _NO_MASS else _pick(excess, random))
    return Verified(len(q), draw(p[-1], random))


def draw(p: Probabilities, random: np.random.Generator) -> int:
    """Draw a token with probability proportional to p, (vocab,); one with p = 0 never comes.

    p need not sum to 1, so rounding in whatever made it does no harm.

    Raises:
        ValueError: p is negative or NaN somewhere, or zero everywhere.
    """
    if not p.min() >= 0.0:
        raise ValueError(f"no probabilities to draw from: the lowest is {p.min()}")
    return _pick(p.cumsum(), random)


def overlap(p: Probabilities, q: Probabilities) -> Probabilities:
    """Return α at each position, Σ min(p, q): the chance that a token drawn from q is accepted.

    Corollary 3.6 of Leviathan et al. It needs no drawing, so it has no noise.

    Args:
        p: (n, vocab), the target's distributions.
        q: (n, vocab), the drafter's.

    Returns:
        (n,), from 0 to 1.
    """
    if p.shape != q.shape or p.ndim != 2:
        raise ValueError(f"p and q must both be (n, vocab), not {p.shape} and {q.shape}")
    alphas: Probabilities = np.minimum(np.minimum(p, q).sum(axis=1), 1.0)  # rows may sum to a little more
    return alphas


def _pick(cumulative: Probabilities, random: np.random.Generator) -> int:
    """Draw with running sums; the number is below the total, so the token found has added to its sum."""
    total = float(cumulative[-1])
    if not _NO_MASS <= total < inf:
        raise ValueError(f"no probabilities to draw from: they sum to {total}")
    return int(cumulative.searchsorted(random.random() * total, side="right"))
