"""What evaluations cost for every drafter and placement: taken from the store, else measured now."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ggufspec import machine
from ggufspec.analysis import warnings
from ggufspec.domain import Failure, HeadFile, ModelFile, Offload, RunSpec, Status
from ggufspec.engines.library import RoundPart
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import most_rows
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import MeasuredCurve, TracedTexts
from ggufspec.measure import Deadline
from ggufspec.tuning.budgeting import Pace
from ggufspec.tuning.values import Plan, Stage

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_MANY = (*range(1, 10), 11, 13, 15, 16, 17, 25, 33, 49)
_FEW = (1, 2, 3, 5, 9, 16, 17, 25, 33, 49)
"""Batches that are timed. Between them costs grow in a straight line; where kernels change, all are timed."""
_FEWER = (1, 4, 17)  # what is timed where only a drafter's share of rounds is wanted
_LARGEST = _MANY[-1]  # tokens of a batch that are timed; larger ones of many users follow from it
_GROWTH = 0.35  # of a token's time, by which each further token lengthens a batch at worst
_REPEATS = 2
_FEWEST = 1
_ROUNDS = 3  # of each batch in a repeat: one to get going, two that are timed
_SETTLED = 8  # tokens of the target alone at each depth: six to get going, two that are timed
_ASSUMED_DRAFT = 0.3  # of a target's token, for a drafted one before it was timed

Curves = dict[tuple[Offload, ModelFile | None], CostCurve]


def curves(
    engine: InprocessEngine,
    plan: Plan,
    first: RunSpec,
    forecastable: Sequence[RunSpec],
    texts: Sequence[TracedTexts],
    *,
    pace: Pace,
    deadline: Deadline,
    depth: int = 0,
) -> Generator[Stage, None, tuple[Curves, tuple[str, ...]]]:
    """Yield a Stage before each curve; return all curves, and notes on what was reused or not stored.

    The target's batches cost the same with every draft model. So nearly all of them are timed with the first
    one, and only a few with the others, to time their drafts. With a head the target also returns its states,
    and all batches are timed. Costs that were measured while other programs used the processor are used for
    this tuning and not stored.

    Args:
        engine: has the models loaded, or loads them.
        plan: whose costs are wanted.
        first: the target's own run on the first prompt.
        forecastable: configurations that can be forecast.
        texts: the traces, which give the context depths to time at.
        pace: how long tokens and prompts take here.
        deadline: for all curves together; fewer batches and repeats are timed where time is short, and the
            last drafters are left out where it ends.
        depth: tokens of other text that stand before the prompts beyond those of the traces.

    Raises:
        Failure: a model does not load, or does not fit beside the others; or the first costs took too long.
    """
    install = plan.session.install
    build, here = install.describe(), machine.snapshot(install.devices)
    most: dict[tuple[Offload, ModelFile | None], int] = {}
    for arm in forecastable:
        assert arm.drafting is not None
        setup = arm.offload, arm.draft_source
        size = arm.drafting.n_max + 1
        shared = min(most_rows(plan.users or 1, arm.drafting.n_max), _LARGEST)
        most[setup] = max(size, shared, most.get(setup, 0))
    shallow = min(text.target_trace.n_prompt for text in texts)
    deep = depth + max(text.target_trace.n_prompt + len(text.target_trace.tokens) for text in texts)
    by_setup: Curves = {}
    first_curves: dict[Offload, MeasuredCurve] = {}  # the first draft model's
    notes: dict[str, None] = {}
    for number, ((offload, drafter), tokens) in enumerate(most.items()):
        yield Stage(name="measuring costs", done=number, total=len(most))
        spec = replace(first, offload=offload)
        depths = profiles.depths_for(shallow, max(shallow, min(deep, first.context - tokens - 1)))
        measured_on = profiles.of(spec, drafter, build=build, machine=here)
        stored = profiles.find_profile(measured_on, most_tokens=tokens, depths=(depths[0], depths[-1]))
        if stored is not None and not plan.fresh:
            by_setup[offload, drafter] = stored.curve
            if not isinstance(drafter, HeadFile):
                first_curves.setdefault(offload, stored.measured)
            notes[f"costs: as measured at {stored.measured_at}; --fresh measures them anew"] = None
            continue
        shared = None if isinstance(drafter, HeadFile) else first_curves.get(offload)
        if shared is not None and shared.curve.most_tokens < tokens:
            shared = None
        few = shared is not None
        if by_setup and deadline.is_over():
            continue  # stored costs of later places take no time
        try:
            round_s = _time_round(engine, spec, drafter, deadline, pace)
            filling_s = pace.prompt_s * depths[-1] / max(1, shallow)
            share_s = deadline.left_s / (len(most) - number) - filling_s
            batches, repeats = _affordable(share_s, round_s, tokens, len(depths), few=few)
            engine.timeout_s = deadline.timeout_s()
            with machine.Watch.start() as watch:
                measured = profiles.measure_curve(
                    engine,
                    spec,
                    drafter,
                    batches=batches,
                    depths=depths,
                    repeats=repeats,
                    build=build,
                    machine=here,
                )
                conditions = watch.conditions()
        except Failure as failure:
            if failure.status is not Status.TIMED_OUT or deadline.limit_s is None or not by_setup:
                raise
            continue
        if shared is not None:
            measured = measured.with_batches(shared)
        if not isinstance(drafter, HeadFile):
            first_curves.setdefault(offload, measured)
        by_setup[offload, drafter] = measured.curve
        if warnings.was_busy(conditions):
            notes["costs: not kept, because other programs used the processor meanwhile"] = None
        else:
            profiles.save(measured.curve, measured.timings, measured.verify_timings)
    return by_setup, tuple(notes)


class _RoundSeconds(NamedTuple):
    """Seconds of a token of the target alone, of one that the drafter drafts, and of one that it reads."""

    token_s: float
    draft_s: float = 0.0
    absorb_s: float = 0.0

    def once(self, batches: Sequence[int], depths: int) -> float:
        """Return the seconds of timing rounds of these sizes once."""
        verifying = sum(1 + _GROWTH * (size - 1) for size in batches) * (self.token_s + self.absorb_s)
        drafting = sum(max(1, size - 1) for size in batches) * self.draft_s
        return depths * (_SETTLED * self.token_s + _ROUNDS * (verifying + drafting))


def least_seconds(forecastable: Sequence[RunSpec], token_s: float) -> float:
    """Return the seconds of the least costs of all drafters and placements, before any drafter was timed."""
    largest: dict[tuple[Offload, ModelFile | None], int] = {}
    for arm in forecastable:
        assert arm.drafting is not None
        setup = arm.offload, arm.draft_source
        largest[setup] = max(arm.drafting.n_max + 1, largest.get(setup, 0))
    assumed = _RoundSeconds(token_s, draft_s=_ASSUMED_DRAFT * token_s)
    return sum(assumed.once((*_FEWER, min(most, _LARGEST)), 2) for most in largest.values())


def _time_round(
    engine: InprocessEngine, spec: RunSpec, drafter: ModelFile | None, deadline: Deadline, pace: Pace
) -> _RoundSeconds:
    """Return what parts of a round take; nothing is timed without a limit, or where nothing drafts."""
    if deadline.limit_s is None or drafter is None:
        return _RoundSeconds(pace.token_s)
    engine.timeout_s = deadline.timeout_s()
    engine.load(spec, (drafter,))
    engine.timeout_s = deadline.timeout_s()
    timings = engine.curve(spec, (drafter,), batches=(2,), depths=(1,), repeats=1).timings

    def mean(part: RoundPart) -> float:
        return fmean([timing.seconds for timing in timings if timing.part is part] or [0.0])

    return _RoundSeconds(pace.token_s, draft_s=mean(RoundPart.DRAFT), absorb_s=mean(RoundPart.ABSORB))


def _affordable(
    time_s: float, seconds: _RoundSeconds, most: int, depths: int, *, few: bool
) -> tuple[tuple[int, ...], int]:
    """Return which batches to time and how often: a few sizes with ``few`` or where time is short."""
    choices = (_FEWER,) if few else (_MANY, _FEW, _FEWER)
    sizes = [tuple(sorted({size for size in choice if size < most} | {most})) for choice in choices]
    for batches in sizes:
        repeats = min(_REPEATS, time_s / seconds.once(batches, depths))
        if repeats >= (_FEWEST + 1 if batches is sizes[0] else _FEWEST):
            return batches, int(repeats)
    return sizes[-1], _FEWEST
