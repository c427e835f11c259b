"""Seconds of passes in which several sequences share a model's weights, from a cost curve of one sequence.

A pass reads the weights once for all its tokens, and the context of each sequence for itself. So it costs
what as many tokens of one sequence cost at the shallowest depth that was timed, and for each sequence what
its own tokens cost more at its own depth. Nothing is timed with several sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from ggufspec.forecast.costs import CostCurve, CurveKind

_STEP = 16  # tokens to which depths are rounded down, so that equal questions are answered once


class SequenceRows(NamedTuple):
    """Tokens of one sequence in a pass, and how many are in its context before."""

    tokens: int
    depth: float


class ServerCosts:
    """What a server's work costs by a cost curve, of target and drafter or of the target alone.

    Passes that are larger than all that were timed take longer in proportion to their tokens. That holds for
    prompts, whose evaluation is limited by arithmetic.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        grids = {CurveKind.VERIFY: curve.verify, CurveKind.DRAFT: curve.draft, CurveKind.ABSORB: curve.absorb}
        self._most = {
            part: min(
                max(point.tokens for point in points if point.depth == depth)
                for depth in {point.depth for point in points}
            )
            for part, points in grids.items()
            if points
        }
        self._seconds = cache(self._read)
        self._pass = cache(self._add_pass)
        self._choosing = cache(self._add_choosing)

    def target_s(self, rows: Sequence[SequenceRows]) -> float:
        """Return the seconds in which the target evaluates a pass."""
        return self._pass_s(CurveKind.VERIFY, rows)

    def absorb_s(self, rows: Sequence[SequenceRows]) -> float:
        """Return the seconds in which the drafter reads a verified pass; 0 where it does not."""
        return self._pass_s(CurveKind.ABSORB, rows) if self.curve.absorb else 0.0

    def draft_s(self, depths: Sequence[float]) -> float:
        """Return the seconds in which the drafter proposes one token for each sequence at these depths.

        It evaluates one token of each as a batch. That costs what reading such a batch costs, and for each
        sequence what proposing a token costs more than reading one.

        Raises:
            ValueError: the curve has no batches of the drafter.
        """
        if not depths:
            return 0.0
        if not self.curve.absorb:
            raise ValueError("the drafter's batches were not timed")
        return self._choosing(tuple(map(_rounded, depths)))

    def _add_choosing(self, depths: tuple[float, ...]) -> float:
        choosing_s = sum(
            self._seconds(CurveKind.DRAFT, 1, depth) - self._seconds(CurveKind.ABSORB, 1, depth)
            for depth in depths
        )
        return max(0.0, choosing_s) + self.absorb_s([SequenceRows(1, depth) for depth in depths])

    def _pass_s(self, part: CurveKind, rows: Sequence[SequenceRows]) -> float:
        return self._pass(part, tuple((tokens, _rounded(depth)) for tokens, depth in rows))

    def _add_pass(self, part: CurveKind, rows: tuple[tuple[int, float], ...]) -> float:
        shallow = self.curve.depths[0]
        total = self._seconds(part, sum(tokens for tokens, _ in rows), shallow)
        for tokens, depth in rows:
            deeper_s = self._seconds(part, tokens, depth) - self._seconds(part, tokens, shallow)
            total += max(0.0, deeper_s)
        return total

    def _read(self, part: CurveKind, tokens: int, depth: float) -> float:
        known = self.curve.depths
        if not self.curve.covers(depth):
            depth = min(max(depth, known[0]), known[-1])
        most = self._most[part]
        if tokens > most:
            return self.curve.seconds(part, most, depth).value * tokens / most
        return self.curve.seconds(part, tokens, depth).value


def _rounded(depth: float) -> float:
    return depth - depth % _STEP if depth > _STEP else depth
