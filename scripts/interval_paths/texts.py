"""Audits of texts of which some differ from the target's own: the bounds on how many there are.

A fault makes many tokens of few texts differ. The bound on texts must hold there; that on tokens is for
tokens that differ independently, and is simulated so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ggufspec.analysis import AuditSummary
from interval_paths.paths import Outcome, Path

TOKENS = 100  # of a text
_DIFFERING = 0.5  # of the tokens of a text that a fault touches


def simulate_fault(texts: int, affected: float, seed: int) -> Outcome:
    """Return whether the bound on the share of texts holds, where a fault touches this share of them."""
    random = np.random.default_rng(seed)
    divergent = np.where(random.random(texts) < affected, random.binomial(TOKENS, _DIFFERING, texts), 0)
    bound = _summarize(divergent.tolist()).highest_share_of_texts
    assert bound is not None
    return Outcome(holds=affected <= bound)


def simulate_tokens(texts: int, share: float, seed: int) -> Outcome:
    """Return whether the bound on the share of tokens holds, where each differs by itself."""
    random = np.random.default_rng(seed)
    bound = _summarize(random.binomial(TOKENS, share, texts).tolist()).highest_share_of_tokens
    assert bound is not None
    return Outcome(holds=share <= bound)


def _summarize(divergent: Sequence[int]) -> AuditSummary:
    """Return the audit of texts with so many divergent tokens each."""
    return AuditSummary(
        texts=len(divergent),
        tokens=TOKENS * len(divergent),
        near_ties=0,
        divergent=sum(divergent),
        divergent_texts=sum(count > 0 for count in divergent),
        places=None,
        impossible=None,
        identical=0,
        compared=0,
        unjudged=(),
    )


PATHS = (
    *(
        Path(
            name=f"bound on texts, {texts} audited, {share:.0%} touched by a fault",
            simulate=partial(simulate_fault, texts, share),
        )
        for texts in (8, 20, 60)
        for share in (0.01, 0.05, 0.3)
    ),
    *(
        Path(
            name=f"bound on tokens, {texts} texts, {share:.1%} differ independently",
            simulate=partial(simulate_tokens, texts, share),
        )
        for texts in (8, 60)
        for share in (0.001, 0.01)
    ),
)
