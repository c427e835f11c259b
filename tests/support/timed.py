"""Timings of rounds by a formula, and the cost curves that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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


def take(
    seconds: Callable[[RoundPart, int | None, int, int], float],
    batches: Sequence[int] = BATCHES,
    depths: Sequence[int] = DEPTHS,
    *,
    repeats: int = 2,
    drafts: bool = True,
) -> tuple[Timing, ...]:
    """Return samples of all parts of rounds, or of the target alone, as an engine takes them.

    Args:
        seconds: what a part takes, by the drafter's number, the tokens and the depth.
        batches: sizes of the target's batches.
        depths: tokens in the context.
        repeats: samples of each.
        drafts: whether there is a drafter.
    """
    rounds = [RoundPart.ABSORB, RoundPart.VERIFY, RoundPart.CHOOSE, RoundPart.RESIZE]
    taken: list[tuple[RoundPart, int | None, int, int]] = []
    for depth in (depth for depth in depths for _ in range(repeats)):
        plain = rounds[1:3] if drafts else rounds[1:]
        taken += [(part, None, size, depth) for size in ((1,) if drafts else batches) for part in plain]
        for size in batches if drafts else ():
            taken.append((RoundPart.DRAFT, 0, max(1, size - 1), depth))
            taken += [(part, 0, size, depth) for part in rounds]
    return tuple(Timing(*of, seconds(*of)) for of in taken)


def timings(target: Shape = TARGET, drafter: Shape = DRAFTER, **asked: Any) -> tuple[Timing, ...]:
    """Return two samples of every part of every round; all depths take the same time."""

    def seconds(part: RoundPart, _: int | None, tokens: int, __: int) -> float:
        verify_s, absorb_s = evaluation_s(target, tokens), evaluation_s(drafter, tokens)
        return {
            RoundPart.DRAFT: tokens * evaluation_s(drafter),
            RoundPart.ABSORB: absorb_s,
            RoundPart.VERIFY: verify_s,
            RoundPart.CHOOSE: tokens * 1e-5,
            RoundPart.RESIZE: verify_s + absorb_s,
        }[part]

    return take(seconds, **asked)


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
