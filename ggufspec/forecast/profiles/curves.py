"""Raw timings of the in-process engine -> a cost curve.

A point is the mean of its samples, because the time of a run is a sum. Samples that took more than twice or
less than half of their lower median were disturbed, and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, linear_regression, median, median_low, variance
from typing import TYPE_CHECKING

from ggufspec.domain import Build, HeadFile, Machine, ModelFile, RunSpec
from ggufspec.engines.library import RoundPart, Timing
from ggufspec.forecast.costs import CostCurve, MeasuredOn, Point
from ggufspec.stats import Z95, Estimate

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_DISTURBED = 2.0  # times their lower median, or its reciprocal: samples beyond were disturbed
_MOST_SAVED = 0.5  # of a token's time among rounds, by the target alone: only its caches are warmer
_NEAR = 1024  # tokens of context within which costs are taken to grow in a straight line

Samples = Mapping[tuple[int, int], Sequence[float]]  # (tokens, depth) -> seconds


@dataclass(frozen=True, kw_only=True)
class MeasuredCurve:
    """A cost curve, and the timings from which ``fit`` computes it again.

    Attributes:
        curve: the costs.
        timings: all that were taken; empty where they are not known.
        verify_timings: those of another drafter's rounds, if the target's batches were timed there.
    """

    curve: CostCurve
    timings: tuple[Timing, ...] = ()
    verify_timings: tuple[Timing, ...] = ()

    def with_batches(self, other: MeasuredCurve) -> MeasuredCurve:
        """Return it with the target's batches as another drafter's rounds timed them."""
        timings = other.verify_timings or tuple(
            timing for timing in other.timings if timing.part is RoundPart.VERIFY
        )
        return MeasuredCurve(
            curve=replace(self.curve, verify=other.curve.verify),
            timings=self.timings if timings else (),
            verify_timings=timings,
        )


def depths_for(first: int, last: int) -> tuple[int, ...]:
    """Return the depths at which to measure for contexts of ``first`` to ``last`` tokens."""
    if last - first <= _NEAR:
        return tuple(sorted({first, last}))
    return first, (first + last) // 2, last


def measure_curve(
    engine: InprocessEngine,
    spec: RunSpec,
    drafter: ModelFile | None,
    *,
    batches: Sequence[int],
    depths: Sequence[int],
    repeats: int = 3,
    build: Build | None = None,
    machine: Machine | None = None,
) -> MeasuredCurve:
    """Measure what a drafter and its target cost, or the target alone.

    Args:
        engine: has the models loaded, or loads them.
        spec: a plain run of the target; its prompt gives the tokens that are evaluated.
        drafter: what drafts, if anything does.
        batches: sizes of the target's batches in tokens, 1 among them.
        depths: tokens in the context before.
        repeats: how often to go through all batches; each time gives two samples of each point.
        build: what measures, for the curve's ``measured_on``.
        machine: where.

    Raises:
        Failure: a model does not load, or the deepest round does not fit into the context.
    """
    drafters = () if drafter is None else (drafter,)
    measured = engine.curve(spec, drafters, batches=batches, depths=depths, repeats=repeats)
    measured_on = of(spec, drafter, build=build, machine=machine)
    return MeasuredCurve(curve=fit(measured.timings, measured_on), timings=measured.timings)


def fit(
    timings: Sequence[Timing], measured_on: MeasuredOn, *, verify_timings: Sequence[Timing] = ()
) -> CostCurve:
    """Return the curve that follows from timings.

    Args:
        timings: of a drafter's rounds and of the target alone, or of the target alone.
        measured_on: what was timed.
        verify_timings: of the target's batches, if they were timed with another drafter.

    Raises:
        ValueError: they are not the timings of a curve.
    """
    rounds = [timing for timing in timings if timing.drafter is not None]
    plain = [timing for timing in timings if timing.drafter is None]
    batches = rounds or plain
    chosen = [timing.seconds / timing.tokens for timing in timings if timing.part is RoundPart.CHOOSE]
    verify, absorb = (_points(_of(batches, part)) for part in (RoundPart.VERIFY, RoundPart.ABSORB))
    drafts = _of(rounds, RoundPart.DRAFT)
    draft, overhead_s = (_points(drafts), _mean(())) if measured_on.drafts_blocks else _drafting(drafts)
    of_others = _of((timing for timing in verify_timings if timing.drafter is not None), RoundPart.VERIFY)
    return CostCurve(
        verify=_points(of_others) if verify_timings else verify,
        draft=draft,
        absorb=absorb,
        overhead_s=overhead_s,
        plain_overhead_s=_plain_overhead(plain, verify) if rounds else _mean(()),
        choose_s=_mean(_undisturbed(chosen)),
        resize_s=_resize(batches, verify, absorb) if rounds else _resize(batches, verify),
        measured_on=measured_on,
    )


def of(
    spec: RunSpec, drafter: ModelFile | None, *, build: Build | None, machine: Machine | None
) -> MeasuredOn:
    """Return what a curve of these models would be of."""
    head = drafter if isinstance(drafter, HeadFile) else None
    file = drafter if head is None else head.file
    return MeasuredOn(
        target=sized(spec.pair.target),
        drafter=file and sized(file),
        head=None if head is None else head.method,
        offload=spec.offload if drafter is not None else spec.offload.target_alone,
        threads=spec.threads,
        build=build,
        machine=machine,
    )


def sized(model: ModelFile) -> ModelFile:
    """Return a model with its file's size: another file under the same name is another model."""
    if model.path is None or model.size_bytes is not None:
        return model
    return replace(model, size_bytes=model.path.stat().st_size)


def _plain_overhead(plain: Sequence[Timing], verify: Sequence[Point]) -> Estimate:
    """Return what a step of the target alone takes more than its single tokens among rounds."""
    among_rounds = {point.depth: point.seconds.value for point in verify if point.tokens == 1}
    apart = _mean(
        [point.seconds.value - among_rounds[point.depth] for point in _points(_of(plain, RoundPart.VERIFY))]
    )
    return apart.moved_to(max(-_MOST_SAVED * min(among_rounds.values(), default=0.0), apart.value))


def _resize(timings: Iterable[Timing], *again: Sequence[Point]) -> Estimate:
    """Return what a batch of another size takes more than the same batch again, by points of its parts."""
    firsts = _points(_of(timings, RoundPart.RESIZE))
    more = [
        first.seconds.value - sum(point.seconds.value for point in parts)
        for first, *parts in zip(firsts, *again, strict=False)
    ]
    if not more:
        return _mean(())
    # Each is the difference of a few samples, so that a disturbed one decides their mean. To build a graph
    # again never saves time.
    return _mean(more).moved_to(max(0.0, median(more)))


def _of(timings: Iterable[Timing], part: RoundPart) -> Samples:
    """Return the seconds of one part by tokens and depth."""
    samples: dict[tuple[int, int], list[float]] = {}
    for timing in timings:
        if timing.part is part:
            samples.setdefault((timing.tokens, timing.depth_tokens), []).append(timing.seconds)
    return samples


def _drafting(samples: Samples) -> tuple[tuple[Point, ...], Estimate]:
    """Return the drafter's seconds per token by depth, and those that a draft takes besides.

    The first token of a draft costs more than the others, because the target has used the caches meanwhile.
    So the means lie on a line over the draft's size: its slope is per token, its height besides. Without a
    line that rises, nothing is besides.
    """
    means = _points(samples)
    per_token: list[Point] = []
    heights: list[float] = []
    for depth in sorted({point.depth for point in means}):
        sizes = [point for point in means if point.depth == depth]
        tokens, seconds = [point.tokens for point in sizes], [point.seconds.value for point in sizes]
        slope, height = linear_regression(tokens, seconds) if len(sizes) > 1 else (0.0, 0.0)
        if slope <= 0:
            slope, height = sum(seconds) / sum(tokens), 0.0
        errors = [point.seconds.relative_half_width for point in sizes]
        measured = [error for error in errors if error is not None]
        half = slope * math.hypot(*measured) / len(measured) if measured else None
        per_token.append(Point(tokens=1, depth=depth, seconds=Estimate.around(slope, half)))
        heights.append(height)
    return tuple(per_token), _mean(heights)


def _points(samples: Samples) -> tuple[Point, ...]:
    """Return the mean of each place; the relative spread is taken to be the same at all of them."""
    kept = {index: _undisturbed(values) for index, values in samples.items()}
    freedom = sum(len(values) - 1 for values in kept.values())
    squares = sum(
        variance(values) / fmean(values) ** 2 * (len(values) - 1)
        for values in kept.values()
        if len(values) > 1
    )
    spread = math.sqrt(squares / freedom) if freedom else None
    points = []
    for (tokens, depth), values in sorted(kept.items()):
        mean = fmean(values)
        half = None if spread is None else Z95 * spread * mean / math.sqrt(len(values))
        points.append(Point(tokens=tokens, depth=depth, seconds=Estimate.around(mean, half)))
    return tuple(points)


def _mean(values: Sequence[float]) -> Estimate:
    """Return the mean of a time that may be 0 or less; without samples it is nothing."""
    if not values:
        return Estimate(value=0.0, lo=0.0, hi=0.0)
    half = Z95 * math.sqrt(variance(values) / len(values)) if len(values) > 2 else None
    return Estimate.around(fmean(values), half)


def _undisturbed(values: Sequence[float]) -> list[float]:
    # other programs only add time: of two samples that differ much, the shorter one is right
    middle = median_low(values) if values else 0.0
    return [value for value in values if middle / _DISTURBED <= value <= middle * _DISTURBED]
