"""Raw timings of the in-process engine -> a cost curve.

A point is the median of its samples, times the ratio of the mean of all samples to their medians: a single
disturbed sample does not change the median, and the time of a run is a sum, so it grows with the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, linear_regression, median
from typing import TYPE_CHECKING

from ggufspec.domain import Build, Machine, ModelFile, RunSpec
from ggufspec.engines.library import RoundPart, Timing, messages
from ggufspec.forecast.costs import CostCurve, MeasuredOn, Point
from ggufspec.stats import Z95, Estimate

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_MEDIAN_S = math.sqrt(math.pi / 2)  # the standard error of a median over that of a mean, normal samples
_DISTURBED = 2.0  # samples above this many times their median were disturbed by other programs
_NEAR = 1024  # tokens of context within which costs are taken to grow in a straight line

Samples = Mapping[tuple[int, int], Sequence[float]]  # (tokens, depth) -> seconds


def depths_for(first: int, last: int) -> tuple[int, ...]:
    """Return the depths at which to measure for contexts of ``first`` to ``last`` tokens."""
    if last - first <= _NEAR:
        return tuple(sorted({first, last}))
    return first, (first + last) // 2, last


def curve(
    engine: InprocessEngine,
    spec: RunSpec,
    drafter: ModelFile | None,
    *,
    batches: Sequence[int],
    depths: Sequence[int],
    repeats: int = 3,
    build: Build | None = None,
    machine: Machine | None = None,
) -> CostCurve:
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
    return pooled([measured], of(spec, drafter, build=build, machine=machine))


def pooled(measured: Sequence[messages.Curve], about: MeasuredOn) -> CostCurve:
    """Return one curve of several measurements of the same things, by one drafter at most.

    Args:
        measured: raw timings at the same batches and depths.
        about: what they are of.
    """
    timings = [timing for curve in measured for timing in curve.timings]
    alone = _samples(timing for timing in timings if timing.drafter is None)
    if about.drafter is None:
        return CostCurve(verify=_points(alone, _skew(alone)), measured_on=about)
    return _joined(alone, [timing for timing in timings if timing.drafter is not None], about)


def of(
    spec: RunSpec, drafter: ModelFile | None, *, build: Build | None, machine: Machine | None
) -> MeasuredOn:
    """Return what a curve of these models would be of."""
    layers = spec.offload if drafter is not None else spec.offload.target_alone
    return MeasuredOn(
        target=sized(spec.pair.target),
        drafter=None if drafter is None else sized(drafter),
        offload=layers,
        threads=spec.threads,
        kv_type=spec.kv_type,
        build=build,
        machine=machine,
    )


def sized(model: ModelFile) -> ModelFile:
    """Return a model with its file's size: another file under the same name is another model."""
    if model.path is None or model.size_bytes is not None:
        return model
    return replace(model, size_bytes=model.path.stat().st_size)


def _joined(alone: Samples, timings: Sequence[Timing], about: MeasuredOn) -> CostCurve:
    parts = {part: _samples(timing for timing in timings if timing.part is part) for part in RoundPart}
    (draft, besides), verify = _drafting(timings), parts[RoundPart.VERIFY]
    steps = _points(alone, _skew(alone))
    among_rounds = {point.depth: point for point in _points(verify, _skew(verify)) if point.tokens == 1}
    apart = fmean(step.seconds.value - among_rounds[step.depth].seconds.value for step in steps)
    return CostCurve(
        verify=_points(verify, _skew(verify)),
        draft=_points(draft, _skew(draft)),
        absorb=_points(parts[RoundPart.ABSORB], _skew(parts[RoundPart.ABSORB])),
        overhead_s=_estimate(besides, 1.0),
        plain_overhead_s=Estimate(value=apart, lo=None, hi=None),
        measured_on=about,
    )


def _samples(timings: Iterable[Timing]) -> dict[tuple[int, int], list[float]]:
    samples: dict[tuple[int, int], list[float]] = {}
    for timing in timings:
        samples.setdefault((timing.tokens, timing.depth_tokens), []).append(timing.seconds)
    return samples


def _drafting(timings: Iterable[Timing]) -> tuple[dict[tuple[int, int], list[float]], list[float]]:
    """Return the drafter's seconds per token by depth, and those that a draft takes besides.

    The first token of a draft is dearer than the others, because the target has used the caches meanwhile.
    Rounds were timed in sweeps over all sizes: the n-th draft of every size lies on the n-th line.
    """
    by_size: dict[tuple[int, int], list[float]] = _samples(
        timing for timing in timings if timing.part is RoundPart.DRAFT
    )
    found: dict[tuple[int, int], list[float]] = {}
    besides: list[float] = []
    for depth in sorted({depth for _, depth in by_size}):
        sizes = {tokens: samples for (tokens, at), samples in by_size.items() if at == depth}
        for number in range(min(map(len, sizes.values()))):
            line = _line({tokens: samples[number] for tokens, samples in sizes.items()})
            found.setdefault((1, depth), []).append(line[0])
            besides.append(line[1])
    return found, besides


def _line(seconds: Mapping[int, float]) -> tuple[float, float]:
    """Return seconds per token and besides; where no line with a slope is to be seen, nothing is besides."""
    slope, height = linear_regression([*seconds], [*seconds.values()]) if len(seconds) > 1 else (0.0, 0.0)
    return (slope, height) if slope > 0 else (sum(seconds.values()) / sum(seconds), 0.0)


def _skew(samples: Samples) -> float:
    """Return how far means lie above medians, judged over all points of a kind together."""
    middles = {place: median(values) for place, values in samples.items()}
    shares = [second / middles[place] for place, values in samples.items() for second in values]
    return fmean(share for share in shares if share < _DISTURBED)


def _points(samples: Samples, skew: float) -> tuple[Point, ...]:
    return tuple(
        Point(tokens=tokens, depth=depth, seconds=_estimate(values, skew))
        for (tokens, depth), values in sorted(samples.items())
    )


def _estimate(values: Sequence[float], skew: float) -> Estimate:
    """Return a median with the normal interval of medians; the spread is taken from the quartiles' half."""
    middle = median(values)
    spread = median(abs(value - middle) for value in values) * 1.4826  # of a normal distribution
    half = Z95 * _MEDIAN_S * spread / math.sqrt(len(values))
    if len(values) < 3:  # two samples tell no spread
        return Estimate(value=middle * skew, lo=None, hi=None)
    return Estimate(value=middle * skew, lo=max(0.0, (middle - half) * skew), hi=(middle + half) * skew)
