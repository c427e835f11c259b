"""From a model's logits to the probabilities of its next token, as llama.cpp's sampler chain makes them."""

from __future__ import annotations

from math import isfinite, log

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Sampling

Logits = NDArray[np.float32] | NDArray[np.float64]
Probabilities = NDArray[np.float64]
Tokens = NDArray[np.intp]

_HEADS = (256, 8192)  # top-p rarely keeps more tokens than these, and sorting all 150,000 takes 20 ms


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
