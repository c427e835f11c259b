"""Timings of rounds by a formula, and the cost curves that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec.engines.library import RoundPart, Timing
from ggufspec.forecast import profiles
from ggufspec.forecast.costs import MeasuredOn, Shape
from ggufspec.forecast.profiles import SharedProfile

FIXED_S, BANDWIDTH = 0.0002, 1e9
"""What each evaluation takes: so long, and its bytes over this bandwidth."""
TARGET = Shape(weight_bytes=4e6, active_bytes=4e6, kv_bytes=0.0, flops=8e6)
DRAFTER = Shape(weight_bytes=1e6, active_bytes=1e6, kv_bytes=0.0, flops=2e6)
BATCHES, DEPTHS = (1, 2, 3, 5, 9), (0, 100)


def evaluation_s(shape: Shape, tokens: int = 1) -> float:
    """Return the seconds of a batch, each further token of which takes a tenth more."""
    return (FIXED_S + shape.weight_bytes / BANDWIDTH) * (1 + 0.1 * (tokens - 1))


def timings(
    target: Shape = TARGET,
    drafter: Shape = DRAFTER,
    *,
    batches: Sequence[int] = BATCHES,
    depths: Sequence[int] = DEPTHS,
) -> tuple[Timing, ...]:
    """Return two samples of every part of every round; all depths take the same time."""
    taken: list[Timing] = []
    for depth in (depth for depth in depths for _ in range(2)):
        taken.append(Timing(RoundPart.VERIFY, None, 1, depth, evaluation_s(target)))
        taken.append(Timing(RoundPart.CHOOSE, None, 1, depth, 1e-5))
        for size in batches:
            verify_s, absorb_s = evaluation_s(target, size), evaluation_s(drafter, size)
            steps = max(1, size - 1)
            taken += [
                Timing(RoundPart.DRAFT, 0, steps, depth, steps * evaluation_s(drafter)),
                Timing(RoundPart.ABSORB, 0, size, depth, absorb_s),
                Timing(RoundPart.VERIFY, 0, size, depth, verify_s),
                Timing(RoundPart.CHOOSE, 0, size, depth, size * 1e-5),
                Timing(RoundPart.RESIZE, 0, size, depth, verify_s + absorb_s),
            ]
    return tuple(taken)


def shared(measured_on: MeasuredOn, target: Shape = TARGET, drafter: Shape = DRAFTER) -> SharedProfile:
    """Return a curve as bundles have it."""
    taken = timings(target, drafter)
    return SharedProfile(
        measured_at="2026-01-02T03:04:05+00:00",
        curve=profiles.fit(taken, measured_on),
        timings=taken,
        verify_timings=(),
        target=target,
        drafter=drafter,
    )
