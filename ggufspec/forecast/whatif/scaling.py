"""What a pair costs on a machine where another pair was measured: its times, scaled by what models read.

One evaluation is taken to cost a fixed time and its bytes over a bandwidth:

    seconds = a + bytes / b

Target and drafter of the measured pair give a and b, as one is larger than the other. The time of another
model is the measured time of the same batch and depth, times the line's value for the other model over its
value for the measured one. So what the line leaves out, such as slower kernels for larger batches, stays as
measured. Where the two models do not lie on such a line, times are scaled by bytes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.forecast.costs import CostCurve, CurveKind, Point, Shape
from ggufspec.forecast.profiles import SharedProfile
from ggufspec.stats import Estimate


@dataclass(frozen=True, kw_only=True)
class _FittedLine:
    """Seconds over bytes: what an evaluation takes besides reading, in bytes that could be read meanwhile."""

    fixed_bytes: float

    def ratio(self, shape: Shape, measured: Shape, tokens: int, depth: float) -> float:
        """Return the time of a batch of one model over that of another."""
        own_bytes, measured_bytes = shape.read_bytes(tokens, depth), measured.read_bytes(tokens, depth)
        return (self.fixed_bytes + own_bytes) / (self.fixed_bytes + measured_bytes)


def choose_profile(profiles: Sequence[SharedProfile], target: Shape, drafter: Shape) -> SharedProfile:
    """Return the profile whose models read most nearly what these do; of several, the last."""

    def distance(profile: SharedProfile) -> float:
        pairs = ((profile.target, target), (profile.drafter, drafter))
        return sum(abs(math.log(theirs.read_bytes(1, 0) / shape.read_bytes(1, 0))) for theirs, shape in pairs)

    return min(reversed(profiles), key=distance)


def scale_curve(profile: SharedProfile, target: Shape, drafter: Shape) -> CostCurve:
    """Return the costs of another pair on the machine of a profile, placed likewise.

    Args:
        profile: what was measured.
        target: what the other pair's target reads.
        drafter: likewise.
    """
    curve, line = profile.curve, _line(profile)

    def scale(points: Sequence[Point], shape: Shape, measured: Shape) -> list[Estimate]:
        return [
            _times(point.seconds, line.ratio(shape, measured, point.tokens, point.depth)) for point in points
        ]

    return curve.with_times(
        [
            *scale(curve.verify, target, profile.target),
            *scale(curve.draft, drafter, profile.drafter),
            *scale(curve.absorb, drafter, profile.drafter),
            *(curve.overhead_s, curve.plain_overhead_s, curve.choose_s, curve.resize_s),
        ]
    )


def _line(profile: SharedProfile) -> _FittedLine:
    """Return the line through the times of target and drafter for one token."""
    depth = profile.curve.depths[0]
    large_s = profile.curve.seconds(CurveKind.VERIFY, 1, depth).value
    small_s = profile.curve.seconds(CurveKind.DRAFT, 1, depth).value
    large, small = profile.target.read_bytes(1, depth), profile.drafter.read_bytes(1, depth)
    if large <= small or large_s <= small_s:
        return _FittedLine(fixed_bytes=0.0)
    bandwidth = (large - small) / (large_s - small_s)
    return _FittedLine(fixed_bytes=max(0.0, small_s * bandwidth - small))


def _times(estimate: Estimate, factor: float) -> Estimate:
    lo, hi = estimate.lo, estimate.hi
    return Estimate(
        value=estimate.value * factor,
        lo=None if lo is None else lo * factor,
        hi=None if hi is None else hi * factor,
    )
