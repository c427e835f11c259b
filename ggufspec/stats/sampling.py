"""Exact speculative sampling: the drafter saves time, the text stays distributed as the target's own.

p is the target's distribution of the next token, q the drafter's, γ the draft size. Both models' logits go
through the same sampler chain. The algorithm is algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192) and
algorithm 2 of Chen et al. 2023 (arXiv 2302.01318). A drafter that always proposes its likeliest token is the
special case of a one-hot q: a draft is then accepted with the target's probability of it.

Whether texts follow the target is bounded by the share of divergent ones, and tested by sampled tokens: where
tokens were drawn from known distributions, the place of each token in the cumulative distribution, randomised
within the token's own probability, is uniform and independent of all others. That is the probability integral
transform (Rosenblatt 1952), for discrete values as by Czado, Gneiting and Held 2009 (Biometrics 65,
1254-1261). Tokens are ordered by falling probability, so that a text of another temperature, or of another
sampler, has too many tokens in some part of the range. Pearson's chi-square test compares ``BINS`` equal
parts of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, log

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Sampling

Logits = NDArray[np.float32] | NDArray[np.float64]
Probabilities = NDArray[np.float64]
Tokens = NDArray[np.intp]

_HEADS = (256, 8192)  # top-p rarely keeps more tokens than these, and sorting all 150,000 takes 20 ms
_NO_MASS = float(np.finfo(np.float64).tiny)  # below it doubles are too coarse to draw in proportion


def distribution(logits: Logits, sampling: Sampling) -> Probabilities:
    """Return the probabilities from which the next token is drawn.

    The order is that of llama.cpp's default chain (``samplers`` in common/common.h), from April 2024 to
    today: top-k, top-p, min-p, temperature last. So top-p and min-p judge the model's own probabilities,
    top-p those among the k that top-k left. Links of the chain that ``Sampling`` does not know are off by
    default there. top-k <= 0, top-p >= 1 and min-p <= 0 filter nothing; the likeliest token always stays.
    top-p keeps the token that reaches the sum. Among equal logits the lower token counts as the likelier,
    where llama.cpp leaves the choice to its sort. It computes in float32, we in float64: a token within
    rounding of a threshold may fall on the other side of it.

    Args:
        logits: (vocab,); -inf marks a token that cannot be.
        sampling: greedy gives all to the likeliest token.

    Returns:
        (vocab,), sums to 1.

    Raises:
        ValueError: logits that are NaN, +inf, all -inf, or none at all; a setting that is not finite.
    """
    values = np.asarray(logits, dtype=np.float64)
    peak = _peak(values)
    if not all(map(isfinite, (sampling.temperature, sampling.top_p, sampling.min_p))):
        raise ValueError(f"temperature, top-p and min-p must be finite: {sampling}")
    result = np.zeros_like(values)
    if sampling.greedy:
        result[int(values.argmax())] = 1.0  # the first of equals
        return result
    kept = _kept(values, peak, sampling)
    with np.errstate(over="ignore"):  # near temperature 0 all but the likeliest go to -inf
        weights = np.exp((values[kept] - peak) / sampling.temperature)
    result[kept] = weights / weights.sum()
    return result


def distributions(logits: Logits, sampling: Sampling) -> Probabilities:
    """Return ``distribution`` of every row: (n, vocab) to (n, vocab), eight bytes per number."""
    if logits.ndim != 2:
        raise ValueError(f"logits must be (n, vocab), not {logits.shape}")
    result = np.empty(logits.shape)
    for row, values in zip(result, logits, strict=True):
        row[:] = distribution(values, sampling)
    return result


def _peak(values: Probabilities) -> float:
    """Return the highest logit; one pass tells every kind of logits that mean nothing."""
    if values.ndim != 1 or not values.size:
        raise ValueError(f"logits must be (vocab,), not {values.shape}")
    peak = float(values.max())
    if not isfinite(peak):
        reasons = {np.inf: "+inf among them", -np.inf: "-inf everywhere, so no token is left"}
        raise ValueError(f"the logits are not finite: {reasons.get(peak, 'NaN among them')}")
    return peak


def _kept(values: Probabilities, peak: float, sampling: Sampling) -> Tokens:
    """Return the tokens that top-k, top-p and min-p leave."""
    tokens: Tokens
    if 0 < sampling.top_k < len(values):
        tokens = _likeliest(values, sampling.top_k)
        if sampling.top_p < 1.0:
            weights = np.exp(values[tokens] - peak)
            tokens = tokens[: _reach(weights, sampling.top_p * weights.sum()) + 1]
    elif sampling.top_p < 1.0:
        goal = sampling.top_p * np.exp(values - peak).sum()
        for size in (*(head for head in _HEADS if head < len(values)), len(values)):
            tokens = _likeliest(values, size)
            at = _reach(np.exp(values[tokens] - peak), goal)
            if at < size:
                break
        tokens = tokens[: at + 1]
    else:
        tokens = np.arange(len(values))
    if sampling.min_p > 0.0:
        passing = tokens[values[tokens] >= peak + log(sampling.min_p)]
        tokens = passing if passing.size else np.array([values.argmax()])  # min-p > 1 leaves one token
    return tokens


def _likeliest(values: Probabilities, size: int) -> Tokens:
    """Return the ``size`` tokens of highest logit, in falling order, equals in order of their numbers."""
    if size < len(values):
        last = np.partition(values, len(values) - size)[len(values) - size]
        above = np.flatnonzero(values > last)
        level = np.flatnonzero(values == last)[: size - len(above)]
        tokens = np.sort(np.concatenate((above, level)))
    else:
        tokens = np.arange(len(values))
    return tokens[np.argsort(-values[tokens], kind="stable")]


def _reach(weights: Probabilities, goal: float) -> int:
    """Return where the running sum first is at least the goal, or the number of weights."""
    return int(weights.cumsum().searchsorted(goal, side="left"))


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
