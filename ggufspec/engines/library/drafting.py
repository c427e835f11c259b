"""How a drafter proposes the tokens of a round, and how the target chooses tokens.

Greedy drafts follow llama.cpp's ``draft-simple`` (common/speculative.cpp) token by token. Others are drawn
from the drafter's distribution, as exact speculative sampling requires.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Drafting, Failure, Sampling, Status
from ggufspec.engines.library.model import LIKELIEST, Logits, Model
from ggufspec.stats import sampling as exact

Distribution = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ProposedDraft:
    """Proposed tokens, their probabilities (see RoundRecord), and the distributions they were drawn from."""

    tokens: list[int]
    probabilities: list[float]
    distributions: list[Distribution]


class Greedy:
    """Always chooses the likeliest token."""

    def first(self, logits: Logits) -> int:
        """Return the next token, from logits of shape (vocabulary,)."""
        return likeliest(logits)

    def draft(
        self, logits: Logits, top: int, top_probability: float
    ) -> tuple[int, float, Distribution | None]:
        """Return a token to propose, its probability, and the distribution it was drawn from.

        Args:
            logits: the drafter's, shape (vocabulary,).
            top: its likeliest token.
            top_probability: its confidence in that token.
        """
        return top, top_probability, None

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Return how many drafted tokens are accepted, and the token after them.

        Args:
            logits: the target's, shape (drafted + 1, vocabulary).
            draft: the proposed tokens.
        """
        for position, token in enumerate(draft.tokens):
            target_token = likeliest(logits[position])
            if target_token != token:
                return position, target_token
        return len(draft.tokens), likeliest(logits[-1])


class Exact:
    """Draws from the processed distributions; the text is distributed as the target's alone."""

    def __init__(self, sampling: Sampling, n_vocab: int) -> None:
        self._sampling = sampling
        self._n_vocab = n_vocab
        self._random = np.random.default_rng(sampling.seed)

    def first(self, logits: Logits) -> int:
        """Draw from the target's distribution."""
        likeliest(logits)
        return int(exact.draw(exact.distribution(logits, self._sampling), self._random))

    def draft(
        self, logits: Logits, top: int, top_probability: float
    ) -> tuple[int, float, Distribution | None]:
        """Draw from the drafter's distribution."""
        q = fit(exact.distribution(logits[: self._n_vocab], self._sampling)[None], self._n_vocab)[0]
        token = int(exact.draw(q, self._random))
        return token, float(q[token]), q

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Accept with probability min(1, p/q), or draw from the residual (Leviathan et al., Chen et al.)."""
        for row in logits:
            likeliest(row)
        p = exact.distributions(logits, self._sampling)
        q = np.asarray(draft.distributions, dtype=p.dtype).reshape(len(draft.tokens), p.shape[1])
        verified = exact.verify(p, q, draft.tokens, self._random)
        return int(verified.n_accepted), int(verified.token)


Chooser = Greedy | Exact


def make_chooser(sampling: Sampling, n_vocab: int) -> Chooser:
    """Return the chooser for a run; ``n_vocab`` is the size of the target's vocabulary."""
    return Greedy() if sampling.greedy else Exact(sampling, n_vocab)


def propose(
    drafter: Model, chooser: Chooser, last: int, at: int, size: int, drafting: Drafting
) -> ProposedDraft:
    """Draft up to ``size`` tokens after ``last``, which is at position ``at``.

    A draft ends where the drafter's confidence is below ``p_min``. That is decided before a token is drawn,
    so it does not change the distribution of the text. A draft shorter than ``n_min`` is dropped.
    """
    draft = ProposedDraft(tokens=[], probabilities=[], distributions=[])
    token, limit = last, drafting.p_min
    while True:
        logits = drafter.step(token, at)
        top = likeliest(logits)
        top_probability = confidence(logits)
        if top_probability < limit:
            break
        token, probability, distribution = chooser.draft(logits, top, top_probability)
        draft.tokens.append(token)
        draft.probabilities.append(probability)
        if distribution is not None:
            draft.distributions.append(distribution)
        if len(draft.tokens) >= size:
            break
        at += 1
    if len(draft.tokens) < drafting.n_min:
        return ProposedDraft(tokens=[], probabilities=[], distributions=[])
    return draft


def likeliest(logits: Logits) -> int:
    """Return the token with the largest logit, the first of equal ones, as llama.cpp does.

    Raises:
        Failure: a logit is NaN.
    """
    token = int(logits.argmax())
    if logits[token] != logits[token]:  # the fastest test for NaN, which argmax returns first
        raise _not_numbers()
    return token


def confidence(logits: Logits) -> float:
    """Return the likeliest token's probability among the ten likeliest.

    It is computed for every drafted token, so it uses only a partition and ten exponentials.
    """
    if len(logits) > LIKELIEST:
        near = np.partition(logits, len(logits) - LIKELIEST)[-LIKELIEST:].tolist()
    else:
        near = logits.tolist()
    top = max(near)
    return 1.0 / sum([exp(logit - top) for logit in near])


def lead(logits: Logits, token: int) -> float:
    """Return by how many nats a token is likelier than any other; negative where another is likelier."""
    others = (part.max() for part in (logits[:token], logits[token + 1 :]) if part.size)
    return float(logits[token] - max(others))


def fit(distributions: Distribution, n_vocab: int) -> Distribution:
    """Resize rows to the target's vocabulary; tokens that the drafter lacks get probability 0."""
    missing = n_vocab - distributions.shape[1]
    return np.pad(distributions, ((0, 0), (0, missing))) if missing > 0 else distributions[:, :n_vocab]


def _not_numbers() -> Failure:
    return Failure(Status.FAILED, "the model's logits are not numbers (NaN): the file or the build is broken")
