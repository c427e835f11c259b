"""A quantity between places where it was measured, over users and depth. Nothing is extrapolated.

Where the server of ``lockstep`` was computed for the places, only the ratio of what was measured to what it
expects is interpolated. Elsewhere the quantity itself is: seconds per round grow nearly in a straight line
with the tokens of a batch and with the depth of the context, and tokens/s bend.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class TrafficPoint(NamedTuple):
    """A number of users, each with so many tokens of other text before the prompt."""

    users: int
    depth: int


def between(
    measured: Mapping[TrafficPoint, float],
    point: TrafficPoint,
    expected: Mapping[TrafficPoint, float] | None = None,
) -> float | None:
    """Return a value between known ones: their own, or on straight lines along users and along depth.

    Where known values surround the place along both, the result is the mean of the two. Where they do so
    along neither, values between users at the next depths on both sides are joined along the depth.

    Args:
        measured: the values.
        point: where one is wanted.
        expected: what is expected at all places; then the lines are of known over expected values. None, or
            without one of the places, for lines of the values themselves.

    Returns:
        The value; None where the place is not surrounded.
    """
    if point in measured:
        return measured[point]
    if expected and {point, *measured} <= expected.keys():
        ratios = {at: value / expected[at] for at, value in measured.items()}
        ratio = between(ratios, point)
        return None if ratio is None else ratio * expected[point]
    along_users = _along_users(measured, point)
    along_depth = _line(
        {at.depth: value for at, value in measured.items() if at.users == point.users}, point.depth
    )
    values = [value for value in (along_users, along_depth) if value is not None]
    if values:
        return sum(values) / len(values)
    rows: dict[int, float] = {}
    for depth in sorted({at.depth for at in measured}):
        value = _along_users(measured, TrafficPoint(point.users, depth))
        if value is not None:
            rows[depth] = value
    return _line(rows, point.depth)


def leave_one_out(
    measured: Mapping[TrafficPoint, float], expected: Mapping[TrafficPoint, float] | None = None
) -> dict[TrafficPoint, float]:
    """Return measured over interpolated - 1 for each place that the other ones surround.

    Leaving each place out in turn shows how far values between measured ones can be trusted. ``expected`` is
    as for ``between``.
    """
    off = {}
    for point, value in measured.items():
        without = {other: number for other, number in measured.items() if other != point}
        interpolated = between(without, point, expected)
        if interpolated is not None:
            off[point] = value / interpolated - 1
    return off


def _along_users(measured: Mapping[TrafficPoint, float], point: TrafficPoint) -> float | None:
    return _line({at.users: value for at, value in measured.items() if at.depth == point.depth}, point.users)


def _line(values: Mapping[int, float], wanted: int) -> float | None:
    """Return the value on the lines between the values; None beyond their ends."""
    if not values or not min(values) <= wanted <= max(values):
        return None
    places = sorted(values)
    return float(np.interp(wanted, places, [values[place] for place in places]))
