"""One pass of each model over one text -> what any draft size would have drafted and accepted.

Greedy drafts are accepted as far as they are the target's own text, so a bit per token fixes the rounds of
every γ. Exact speculative sampling accepts at a place with probability Σ min(p, q) (Leviathan et al. 2023,
arXiv 2211.17192, section 3.3), which fixes the expectation over all places where rounds can begin.
"""

from __future__ import annotations

from ggufspec.forecast.trace.ngrams import EMULATED, ngram_steps, walk, why_not
from ggufspec.forecast.trace.ties import Agreement, Certainty, certainty, compare_rounds, first_text_tie
from ggufspec.forecast.trace.walks import (
    Counts,
    DraftTrace,
    TracedRun,
    TraceStep,
    count,
    expected,
    needed,
    steps,
)
from ggufspec.llama.command import draft_sizes
