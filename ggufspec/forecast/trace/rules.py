"""How each llama.cpp program goes from round to round, and how that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import Program

# Drafts end before a doubtful token, no longer behind it, and the drafter reads what was verified again.
_REWRITTEN = 9109
# speculative-simple looks at what is left to predict: not yet in 9445, first seen in the summer of 2026.
_BUDGETED = 10476


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a program goes from round to round. Read in builds 2699 to 9445 and in the summer of 2026.

    The plain program is one that drafts nothing. The tree program is taken with a single branch.
    """

    program: Program
    build: int | None = None  # llama.cpp's build number; None for today's

    @property
    def first(self) -> int:
        """Tokens that are there before the first round: the prompt's own evaluation gives one to most."""
        return 0 if self.program is Program.SIMPLE else 1

    def is_over(self, at: int, n_predict: int) -> bool:
        """Whether the run ends; drafting programs stop only past ``n_predict``, the others at it."""
        return at > n_predict if self.program in {Program.SIMPLE, Program.TREE} else at >= n_predict

    def most(self, at: int, n_max: int, n_predict: int) -> int:
        """Return the longest draft of a round."""
        left = n_predict - at - 1
        if self.program is Program.PLAIN:
            return 0
        if self.program is Program.SERVER:
            return max(0, min(n_max, left))
        if self.program is Program.SIMPLE and self._since(_BUDGETED) and left > 0:
            return min(n_max, left)  # where nothing is left, its limit of 0 means none
        return n_max

    def cut(self, confidences: Sequence[float], p_min: float) -> tuple[int, int]:
        """Return how many of these proposals are drafted, and how many are looked at."""
        if self.program is not Program.TREE:
            for position, confidence in enumerate(confidences):
                if confidence < p_min:
                    return (
                        (position, position + 1) if self._since(_REWRITTEN) else (position + 1, position + 1)
                    )
        return len(confidences), len(confidences)

    @property
    def absorbs(self) -> bool:
        """Whether the drafter reads each verified batch again."""
        return self.program in {Program.SERVER, Program.SIMPLE} and self._since(_REWRITTEN)

    def _since(self, build: int) -> bool:
        return self.build is None or self.build >= build


def needed(n_predict: int, n_max: int, program: Program) -> int:
    """Return how many tokens a trace must have for a run of ``n_predict`` at γ = ``n_max``."""
    overshoots = program in {Program.SIMPLE, Program.TREE}
    return n_predict + (1 + n_max if overshoots else 0)
