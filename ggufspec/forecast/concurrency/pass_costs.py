"""Seconds of passes in which several sequences share a model's weights, from a cost curve of one sequence.

A pass reads the weights once for all its tokens, and the context of each sequence for itself. So it costs
what as many tokens of one sequence cost at the shallowest depth that was timed, and more for each sequence by
its own depth: seconds for reading that context, and seconds for each token that attends to it. Both follow
from the timed batches of all sizes. Nothing is timed with several sequences: where that was tried with
llama.cpp 0.3.36 on a processor, passes of up to eight sequences took as long as those of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ggufspec import stats
from ggufspec.forecast.costs import CostCurve, CurveKind, Point

_STEP = 16  # tokens to which depths are rounded down, so that equal questions are answered once


class SequenceRows(NamedTuple):
    """Tokens of one sequence in a pass, and how many are in its context before."""

    tokens: int
    depth: float


class DepthCosts(NamedTuple):
    """Seconds that a depth adds to those at the shallowest one: for its sequence, and for each token."""

    sequence_s: float
    token_s: float


class ServerCosts:
    """What a server's work costs by a cost curve, of target and drafter or of the target alone.

    Passes that are larger than all that were timed take longer in proportion to their tokens. That holds for
    prompts, whose evaluation is limited by arithmetic.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._deeper = {
            part: _depth_costs(points)
            for part in (CurveKind.VERIFY, CurveKind.ABSORB)
            if (points := curve.by_kind[part])
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
        if len(rows) == 1:
            return self._seconds(part, *rows[0])  # as it was timed
        total = self._seconds(part, sum(tokens for tokens, _ in rows), self.curve.depths[0])
        for tokens, depth in rows:
            deeper = self._at_depth(part, depth)
            total += deeper.sequence_s + deeper.token_s * tokens
        return total

    def _at_depth(self, part: CurveKind, depth: float) -> DepthCosts:
        timed = self._deeper[part]
        between = (np.interp(depth, [*timed], seconds) for seconds in zip(*timed.values(), strict=True))
        return DepthCosts(*map(float, between))

    def _read(self, part: CurveKind, tokens: int, depth: float) -> float:
        depth, most = self.curve.nearest_depth(depth), self.curve.largest_batch(part)
        if tokens > most:
            return self.curve.seconds(part, most, depth).value * tokens / most
        return self.curve.seconds(part, tokens, depth).value


def _depth_costs(points: Sequence[Point]) -> Mapping[int, DepthCosts]:
    """Return what each timed depth adds to the shallowest one, by all sizes that were timed at both.

    Differences of single points are mostly noise, so a line over the size of the batch is fitted to them, by
    least squares of relative errors.
    """
    seconds = {(point.depth, point.tokens): point.seconds.value for point in points}
    shallow, *deeper = sorted({point.depth for point in points})
    costs = {shallow: DepthCosts(0.0, 0.0)}
    for depth in deeper:
        sizes = [size for at, size in seconds if at == depth and (shallow, size) in seconds]
        later_s = [seconds[depth, size] for size in sizes]
        more_s = [later - seconds[shallow, size] for size, later in zip(sizes, later_s, strict=True)]
        costs[depth] = DepthCosts(*stats.rising_line(sizes, more_s, errors=later_s))
    return costs


def _rounded(depth: float) -> float:
    return depth - depth % _STEP if depth > _STEP else depth
