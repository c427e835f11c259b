"""CostCurve: seconds by the number of tokens in a batch and the depth of the context before it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Build, Machine, Method, ModelFile, Offload
from ggufspec.stats import Z95, Estimate

_NOTHING = Estimate(value=0.0, lo=0.0, hi=0.0)


class CurveKind(StrEnum):
    """What a measured time is of; the field of a curve that has the times of a kind has its name.

    Of batches are the first three, single times the others.
    """

    VERIFY = "verify"  # the target evaluates a batch
    DRAFT = "draft"  # the drafter evaluates one token, and the next is taken from it; or it drafts a block
    ABSORB = "absorb"  # the drafter reads a verified batch, and nothing is sampled
    ROUND = "overhead_s"  # what a drafting round takes besides, however long the draft
    PLAIN = "plain_overhead_s"  # what a step of the target alone takes besides
    CHOOSE = "choose_s"  # the target's sampler chooses a token at one output
    RESIZE = "resize_s"  # what a round takes more when the batch before it had another size


@dataclass(frozen=True, kw_only=True)
class Point:
    """One measured time: ``tokens`` evaluated at once after ``depth`` earlier ones took ``seconds``."""

    tokens: int
    depth: int
    seconds: Estimate


@dataclass(frozen=True, kw_only=True)
class MeasuredOn:
    """What a curve is of. Curves of different ones must not be mixed; absent is what was not measured."""

    target: ModelFile
    drafter: ModelFile | None = None
    head: Method | None = None  # by which the drafter drafts, where it is a head
    offload: Offload | None = None
    threads: int | None = None
    build: Build | None = None
    machine: Machine | None = None
    note: str | None = None  # how the figures came about where they were not measured

    @property
    def drafts_blocks(self) -> bool:
        """Whether the drafter is a head that drafts a block in one evaluation."""
        return self.head is not None and self.head.drafts_block


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """The seconds of everything that happens in a round, with 95 % intervals.

    Between points it is linear in the tokens and in the depth. Nothing is extrapolated: batches beyond the
    largest that was measured are an error, and so are depths unless only one was measured, which then stands
    for all of them.

    Attributes:
        verify: the target's batches of 1 token and more.
        draft: the drafter's single tokens, or blocks by their number of drafted tokens; empty without a
            drafter, or where whole rounds were timed, which are then in ``verify``.
        absorb: the drafter reading what the target verified, which server and simple program of builds since
            9109 do in every round; empty where that does not happen or is part of ``overhead``.
        overhead_s: other seconds per drafting round: the first token of a draft costs more than the others.
        plain_overhead_s: other seconds per step of the target alone.
        choose_s: seconds to choose a token of the target; a round chooses one more than it accepts.
        resize_s: seconds per round whose batch has another size than the last one: its graph is built again.
        shared_errors: errors that points have in common, such as the state of the machine: for each of them
            one standard error of every point, in seconds, in the order of ``points``.
        measured_on: models, offload, build and machine.
    """

    verify: tuple[Point, ...]
    draft: tuple[Point, ...] = ()
    absorb: tuple[Point, ...] = ()
    overhead_s: Estimate = _NOTHING
    plain_overhead_s: Estimate = _NOTHING
    choose_s: Estimate = _NOTHING
    resize_s: Estimate = _NOTHING
    shared_errors: tuple[tuple[float, ...], ...] = ()
    measured_on: MeasuredOn | None = None

    def __post_init__(self) -> None:
        if not any(point.tokens == 1 for point in self.verify):
            raise ValueError("a cost curve needs the target's time for one token")
        batches = (*self.verify, *self.draft, *self.absorb)
        if not all(0 < point.seconds.value < math.inf for point in batches):  # NaN is not
            raise ValueError("a time is a positive number of seconds")

    @cached_property
    def by_kind(self) -> Mapping[CurveKind, tuple[Point, ...]]:
        """The points of each kind; a time that depends on no batch is one point."""
        times = {kind: getattr(self, kind) for kind in CurveKind}
        return {
            kind: (Point(tokens=1, depth=0, seconds=time),) if isinstance(time, Estimate) else time
            for kind, time in times.items()
        }

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """The points of all kinds, one kind after another."""
        return tuple(chain.from_iterable(self.by_kind.values()))

    @property
    def times_s(self) -> NDArray[np.float64]:
        """The seconds of each of ``points``."""
        return np.array([point.seconds.value for point in self.points])

    @property
    def errors_s(self) -> tuple[float, ...]:
        """The standard error of each of ``points``; 0 where no interval is known."""
        spans = ((point.seconds.lo, point.seconds.hi) for point in self.points)
        return tuple(0.0 if lo is None or hi is None else (hi - lo) / 2 / Z95 for lo, hi in spans)

    @property
    def drafts_blocks(self) -> bool:
        """Whether the drafter drafts a block in one evaluation, whose time depends on the draft size."""
        return self.measured_on is not None and self.measured_on.drafts_blocks

    @property
    def most_tokens(self) -> int:
        """The largest batch of the target that was measured: γ + 1."""
        return self.largest_batch(CurveKind.VERIFY)

    def largest_batch(self, kind: CurveKind) -> int:
        """Return the largest batch of a kind that was measured at every depth."""
        return min(map(max, self._grids[kind].rows.values()))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The depths at which the target was measured."""
        return tuple(sorted({point.depth for point in self.verify}))

    def with_times(
        self, times: Sequence[Estimate], *, shared_errors: tuple[tuple[float, ...], ...] = ()
    ) -> CostCurve:
        """Return the curve with other times; ``times`` has one for each of ``points``."""
        left = iter(times)
        changed: dict[str, Any] = {}
        for kind, points in self.by_kind.items():
            moved = tuple(replace(point, seconds=next(left)) for point in points)
            changed[kind] = moved[0].seconds if isinstance(getattr(self, kind), Estimate) else moved
        return replace(self, **changed, shared_errors=shared_errors)

    def scaled(self, factor: float) -> CostCurve:
        """Return the curve with all times multiplied by a factor."""
        return self.with_times(
            [point.seconds.moved_to(factor * point.seconds.value, scale=factor) for point in self.points],
            shared_errors=tuple(tuple(factor * error for error in row) for row in self.shared_errors),
        )

    def covers(self, depth: float) -> bool:
        """Whether a depth lies within what was measured; a single depth is taken for every other."""
        depths = self.depths
        return len(depths) == 1 or depths[0] <= depth <= depths[-1]

    def nearest_depth(self, depth: float) -> float:
        """Return a depth, or the nearest one that was measured."""
        return depth if self.covers(depth) else min(max(depth, self.depths[0]), self.depths[-1])

    def weights(self, part: CurveKind, tokens: int = 1, depth: float = 0) -> Mapping[int, float]:
        """Return which of ``points`` a time is made of, and by how much of each.

        Raises:
            ValueError: the batch or the depth lies outside what was measured.
        """
        return self._grids[part].weights(tokens, depth)

    def seconds(self, part: CurveKind, tokens: int = 1, depth: float = 0) -> Estimate:
        """Return a time; the interval between points is drawn between theirs, too.

        Raises:
            ValueError: the batch or the depth lies outside what was measured.
        """
        weights, points = self.weights(part, tokens, depth), self.points
        parts = [(share, points[index].seconds) for index, share in weights.items()]
        lows = [share * time.lo for share, time in parts if time.lo is not None]
        highs = [share * time.hi for share, time in parts if time.hi is not None]
        has_bounds = len(lows) == len(highs) == len(parts)
        return Estimate(
            value=sum(share * time.value for share, time in parts),
            lo=sum(lows) if has_bounds else None,
            hi=sum(highs) if has_bounds else None,
        )

    @cached_property
    def _grids(self) -> Mapping[CurveKind, _DepthGrid]:
        places = iter(range(len(self.points)))
        return {kind: _DepthGrid(kind.value, points, places) for kind, points in self.by_kind.items()}


class _DepthGrid:
    """Points by depth and tokens, and between which of them a query lies."""

    def __init__(self, name: str, points: Sequence[Point], places: Iterator[int]) -> None:
        self._name = name
        self.rows: dict[int, dict[int, int]] = {}  # depth -> tokens -> the point's place in the curve
        for point in points:
            self.rows.setdefault(point.depth, {})[point.tokens] = next(places)
        self._seen: dict[tuple[int, float], Mapping[int, float]] = {}

    def weights(self, tokens: int, depth: float) -> Mapping[int, float]:
        if (tokens, depth) not in self._seen:
            weights: dict[int, float] = {}
            nearest = {next(iter(self.rows)): 1.0} if len(self.rows) == 1 else self._mix(self.rows, depth)
            for row, share in nearest.items():
                for column, part in self._mix(self.rows[row], tokens).items():
                    index = self.rows[row][column]
                    weights[index] = weights.get(index, 0.0) + share * part
            self._seen[tokens, depth] = weights
        return self._seen[tokens, depth]

    def _mix(self, points: Mapping[int, object], wanted: float) -> dict[int, float]:
        """Return the two known places around one, and the share of each."""
        values = sorted(points)
        if not values or not values[0] <= wanted <= values[-1]:
            measured = f"{values[0]} to {values[-1]} were" if values else "nothing was"
            raise ValueError(f"{self._name} of {wanted:g}: {measured} measured")
        at = min(bisect_right(values, wanted), len(values) - 1)
        right, left = values[at], values[max(at - 1, 0)]
        if left == right:
            return {left: 1.0}
        share = (wanted - left) / (right - left)
        return {value: part for value, part in ((left, 1 - share), (right, share)) if part}


def flat_curve(
    target_tps: float, drafter_tps: float, *, ratios: Sequence[float], overhead_s: float = 0.0
) -> CostCurve:
    """Return the curve of two rates, the same at every depth.

    Reading a verified batch is counted as one evaluation of the drafter, the least that it can take.

    Args:
        target_tps: tokens/s of the target alone.
        drafter_tps: tokens/s of the drafter alone.
        ratios: the target's time for a batch of 1, 2, 3, … tokens over that for one.
        overhead_s: seconds per round besides.
    """

    def points(times: Sequence[float]) -> tuple[Point, ...]:
        return tuple(
            Point(tokens=n, depth=0, seconds=Estimate.around(time)) for n, time in enumerate(times, 1)
        )

    return CostCurve(
        verify=points([ratio / target_tps / ratios[0] for ratio in ratios]),
        draft=points([1 / drafter_tps]),
        absorb=points([1 / drafter_tps] * len(ratios)),
        overhead_s=Estimate.around(overhead_s),
    )
