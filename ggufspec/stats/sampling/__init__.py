"""Exact speculative sampling: the drafter saves time, the text stays distributed as the target's own.

p is the target's distribution of the next token, q the drafter's, γ the draft size. Both models' logits go
through the same sampler chain. The algorithm is algorithm 1 of Leviathan et al. 2023 (arXiv 2211.17192) and
algorithm 2 of Chen et al. 2023 (arXiv 2302.01318). A drafter that always proposes its likeliest token is
the special case of a one-hot q: a draft is then accepted with the target's probability of it.
"""

from __future__ import annotations

from ggufspec.stats.sampling.chain import distribution, distributions
from ggufspec.stats.sampling.expectation import closed_form, closed_form_speedup, expected_accepted
from ggufspec.stats.sampling.verification import Verified, draw, overlap, verify

__all__ = [
    "Verified",
    "closed_form",
    "closed_form_speedup",
    "distribution",
    "distributions",
    "draw",
    "expected_accepted",
    "overlap",
    "verify",
]
