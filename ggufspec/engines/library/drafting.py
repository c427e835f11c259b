"""How a drafter proposes a round's tokens, and how the target's own choice is made.

Greedy drafts follow llama.cpp's ``draft-simple`` (common/speculative.cpp) token by token; others are
drawn from the drafter's distribution, as exact speculative sampling wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Drafting, Sampling, Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.model import LIKELIEST, Logits, Model
from ggufspec.stats import sampling as exact

Distribution = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ProposedDraft:
    """Proposed tokens, a probability for each (see RoundRecord), and what they were drawn from."""

    tokens: list[int]
    probabilities: list[float]
    distributions: list[Distribution]


class Chooser(Protocol):
    """One way to choose tokens from logits."""

    def first(self, logits: Logits) -> int:
        """Return the token after a text, from logits of shape (vocabulary,)."""

    def draft(self, logits: Logits, top: int, sure: float) -> tuple[int, float, Distribution | None]:
        """Return a token to propose, its probability, and the distribution that it was drawn from.

        Args:
            logits: the drafter's, shape (vocabulary,).
            top: its likeliest token.
            sure: its confidence in that token.
        """

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Return how many drafted tokens are accepted, and the token after them.

        Args:
            logits: the target's, shape (drafted + 1, vocabulary).
            draft: what was proposed.
        """


class Greedy:
    """Always the likeliest token."""

    def first(self, logits: Logits) -> int:
        """Return the likeliest token."""
        return likeliest(logits)

    def draft(self, logits: Logits, top: int, sure: float) -> tuple[int, float, Distribution | None]:
        """Return the likeliest token."""
        return top, sure, None

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Accept what the target would have written itself."""
        for place, token in enumerate(draft.tokens):
            own = likeliest(logits[place])
            if own != token:
                return place, own
        return len(draft.tokens), likeliest(logits[-1])


class Exact:
    """Draws from the processed distributions; what is written is distributed as the target alone writes."""

    def __init__(self, sampling: Sampling, n_vocab: int) -> None:
        self._sampling = sampling
        self._n_vocab = n_vocab
        self._random = np.random.default_rng(sampling.seed)

    def first(self, logits: Logits) -> int:
        """Draw from the target's distribution."""
        likeliest(logits)
        return int(exact.draw(exact.distribution(logits, self._sampling), self._random))

    def draft(self, logits: Logits, top: int, sure: float) -> tuple[int, float, Distribution | None]:
        """Draw from the drafter's distribution."""
        q = fit(exact.distribution(logits[: self._n_vocab], self._sampling)[None], self._n_vocab)[0]
        token = int(exact.draw(q, self._random))
        return token, float(q[token]), q

    def verify(self, logits: Logits, draft: ProposedDraft) -> tuple[int, int]:
        """Accept with probability min(1, p/q), else draw from the rest (Leviathan et al., Chen et al.)."""
        for row in logits:
            likeliest(row)
        p = exact.distributions(logits, self._sampling)
        q = np.asarray(draft.distributions, dtype=p.dtype).reshape(len(draft.tokens), p.shape[1])
        verified = exact.verify(p, q, draft.tokens, self._random)
        return int(verified.n_accepted), int(verified.token)


def chooser(sampling: Sampling, n_vocab: int) -> Chooser:
    """Return how a run chooses its tokens; ``n_vocab`` is the target's."""
    return Greedy() if sampling.greedy else Exact(sampling, n_vocab)


def propose(
    drafter: Model, chosen: Chooser, last: int, at: int, size: int, drafting: Drafting
) -> ProposedDraft:
    """Draft up to ``size`` tokens after ``last``, which stands at position ``at``.

    A draft ends before a token where the drafter's confidence is below ``p_min``; that is known before a
    token is drawn, so it leaves the distribution of what is written alone. One shorter than ``n_min`` is
    dropped.
    """
    draft = ProposedDraft(tokens=[], probabilities=[], distributions=[])
    token, limit = last, drafting.p_min
    while True:
        logits = drafter.step(token, at)
        top = likeliest(logits)
        sure = confidence(logits)
        if sure < limit:
            break
        token, probability, distribution = chosen.draft(logits, top, sure)
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
    """Return the token of the largest logit, the first of equal ones, as llama.cpp does.

    Raises:
        Failure: there are logits that are no numbers.
    """
    token = int(logits.argmax())
    if logits[token] != logits[token]:  # the cheapest test for NaN, which argmax takes for the largest
        raise _not_numbers()
    return token


def confidence(logits: Logits) -> float:
    """Return the likeliest token's probability among the ten likeliest.

    It is computed for every drafted token, so a partition and ten exponentials have to do.
    """
    if len(logits) > LIKELIEST:
        near = np.partition(logits, len(logits) - LIKELIEST)[-LIKELIEST:].tolist()
    else:
        near = logits.tolist()
    top = max(near)
    return 1.0 / sum([exp(logit - top) for logit in near])


def fit(distributions: Distribution, n_vocab: int) -> Distribution:
    """Widen rows to the target's vocabulary: what the drafter does not know, it gives no probability."""
    missing = n_vocab - distributions.shape[1]
    return np.pad(distributions, ((0, 0), (0, missing))) if missing > 0 else distributions[:, :n_vocab]


def _not_numbers() -> Failure:
    return Failure(Status.FAILED, "the model's logits are not numbers (NaN): the file or the build is broken")
