"""What evaluations cost for every drafter and placement: taken from the store, else measured now."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ggufspec import machine
from ggufspec.analysis import warnings
from ggufspec.domain import HeadFile, ModelFile, Offload, RunSpec
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import most_rows
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import MeasuredCurve, TracedTexts
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

Curves = dict[tuple[Offload, ModelFile | None], CostCurve]


def curves(
    engine: InprocessEngine,
    plan: Plan,
    first: RunSpec,
    known: Sequence[RunSpec],
    texts: Sequence[TracedTexts],
    *,
    token_s: float,
    time_s: float,
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
        known: configurations that can be forecast.
        texts: the traces, which give the context depths to time at.
        token_s: seconds of the target alone per token.
        time_s: seconds for all curves together; fewer batches and repeats are timed where it is short.
        depth: tokens of other text that stand before the prompts beyond those of the traces.

    Raises:
        Failure: a model does not load, or does not fit beside the others.
    """
    install = plan.session.install
    build, here = install.describe(), machine.snapshot(install.devices)
    most: dict[tuple[Offload, ModelFile | None], int] = {}
    for arm in known:
        assert arm.drafting is not None
        place = arm.offload, arm.draft_source
        size = arm.drafting.n_max + 1
        shared = min(most_rows(plan.users or 1, arm.drafting.n_max), _LARGEST)
        most[place] = max(size, shared, most.get(place, 0))
    shallow = min(text.target_trace.n_prompt for text in texts)
    deep = depth + max(text.target_trace.n_prompt + len(text.target_trace.tokens) for text in texts)
    by_place: Curves = {}
    first_curves: dict[Offload, MeasuredCurve] = {}  # the first draft model's
    notes: dict[str, None] = {}
    for number, ((offload, drafter), tokens) in enumerate(most.items()):
        yield Stage(name="measuring costs", done=number, total=len(most))
        spec = replace(first, offload=offload)
        depths = profiles.depths_for(shallow, max(shallow, min(deep, first.context - tokens - 1)))
        measured_on = profiles.of(spec, drafter, build=build, machine=here)
        stored = profiles.find_profile(measured_on, most_tokens=tokens, depths=(depths[0], depths[-1]))
        if stored is not None and not plan.fresh:
            by_place[offload, drafter] = stored.curve
            if not isinstance(drafter, HeadFile):
                first_curves.setdefault(offload, stored.measured)
            notes[f"costs: as measured at {stored.measured_at}; --fresh measures them anew"] = None
            continue
        shared = None if isinstance(drafter, HeadFile) else first_curves.get(offload)
        if shared is not None and shared.curve.most_tokens < tokens:
            shared = None
        few = shared is not None
        batches, repeats = _affordable(time_s / len(most), token_s, tokens, len(depths), few=few)
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
        if shared is not None:
            measured = measured.with_batches(shared)
        if not isinstance(drafter, HeadFile):
            first_curves.setdefault(offload, measured)
        by_place[offload, drafter] = measured.curve
        if warnings.was_busy(conditions):
            notes["costs: not kept, because other programs used the processor meanwhile"] = None
        else:
            profiles.save(measured.curve, measured.timings, measured.verify_timings)
    return by_place, tuple(notes)


def _affordable(
    time_s: float, token_s: float, most: int, depths: int, *, few: bool
) -> tuple[tuple[int, ...], int]:
    """Return which batches to time and how often: a few sizes with ``few`` or where time is short."""
    choices = (_FEWER, _FEWER) if few else (_MANY, _FEW)
    many, less = (tuple(sorted({size for size in sizes if size < most} | {most})) for sizes in choices)
    for batches, fewest in ((many, _FEWEST + 1), (less, _FEWEST)):
        once_s = token_s * depths * _ROUNDS * sum(1 + _GROWTH * (size - 1) for size in batches)
        repeats = int(min(_REPEATS, time_s / once_s))
        if repeats >= fewest:
            return batches, repeats
    return less, _FEWEST
