"""Cost curves for others: what a bundle says of the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ggufspec.engines.library import Timing
from ggufspec.errors import ResultsError
from ggufspec.forecast.costs import CostCurve, Shape
from ggufspec.results import decode_hook

SHARED = "costs.json"
"""Its name in a bundle."""


@dataclass(frozen=True, kw_only=True)
class SharedProfile:
    """A pair's cost curve, the timings from which it follows, and what each model reads and computes.

    Attributes:
        measured_at: ISO 8601, UTC.
        curve: the costs, with names and paths replaced.
        timings: see ``MeasuredCurve``.
        verify_timings: likewise.
        target: what it reads and computes.
        drafter: likewise.
    """

    measured_at: str
    curve: CostCurve
    timings: tuple[Timing, ...]
    verify_timings: tuple[Timing, ...]
    target: Shape
    drafter: Shape


class _SharedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal[1] = 1
    profiles: tuple[SharedProfile, ...]


def write_shared(profiles: Sequence[SharedProfile]) -> bytes:
    """Return the content of ``costs.json``."""
    return msgspec.json.encode(_SharedFile(profiles=tuple(profiles)), enc_hook=str) + b"\n"


def read_shared(content: bytes) -> tuple[SharedProfile, ...]:
    """Read what ``write_shared`` wrote.

    Raises:
        ResultsError: it is something else, or has no drafter's times or no models' sizes.
    """
    try:
        profiles = msgspec.json.decode(content, type=_SharedFile, dec_hook=decode_hook).profiles
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise ResultsError(f"{SHARED} cannot be read: {error}", "download the bundle again") from error
    for profile in profiles:
        measured_on = profile.curve.measured_on
        has_drafter = profile.curve.draft and measured_on is not None and measured_on.drafter is not None
        if not has_drafter or not all(map(_is_shape, (profile.target, profile.drafter))):
            raise ResultsError(
                f"{SHARED} has a curve without a drafter, or sizes that no model has",
                "download the bundle again",
            )
    return profiles


def _is_shape(shape: Shape) -> bool:
    """Whether some model could have a shape that came from elsewhere."""
    return (
        0 < shape.active_bytes <= shape.weight_bytes
        and 0 < shape.used_share <= 1
        and shape.kv_bytes >= 0
        and (shape.used_share < 1 or shape.active_bytes == shape.weight_bytes)
    )
