"""What evaluations cost on this machine, timed in one process, and measured runs that correct the costs."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, NamedTuple

from ggufspec import forecast, machine, stats, temporary
from ggufspec.analysis import warnings
from ggufspec.domain import Conditions, Failure, HeadFile, ModelFile, Offload, RunSpec, Sample, Status
from ggufspec.engines import Engine, Measurement
from ggufspec.engines.library import RoundPart
from ggufspec.forecast import Calibration, CalibrationRun, costs, profiles
from ggufspec.forecast.concurrency import most_rows
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import MeasuredCurve, TracedTexts
from ggufspec.forecast.trace import DraftTrace
from ggufspec.forecast.whatif import parts_of
from ggufspec.llama.install import Install
from ggufspec.measure import NO_DEADLINE, Deadline
from ggufspec.modelfiles import gguf, memory
from ggufspec.tuning.budgeting import Pace
from ggufspec.tuning.prospects import Traces
from ggufspec.tuning.values import CostSetup, Curves, Plan, Prospect, Stage, cost_setup

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


def curves(
    engine: InprocessEngine,
    install: Install,
    first: RunSpec,
    forecastable: Sequence[RunSpec],
    traces: Traces,
    *,
    users: int,
    pace: Pace,
    deadline: Deadline,
    depth: int = 0,
    fresh: bool = False,
) -> Generator[Stage, None, tuple[Curves, tuple[str, ...]]]:
    """Yield a Stage before each curve; return all curves, and notes on what was reused or not stored.

    The target's batches cost the same with every draft model. So nearly all of them are timed with the first
    one, and only a few with the others, to time their drafts. With a head the target also returns its states,
    and all batches are timed. Costs that were measured while other programs used the processor are used for
    this tuning and not stored.

    Args:
        engine: has the models loaded, or loads them.
        install: its llama.cpp.
        first: the target's own run on the first prompt.
        forecastable: configurations that can be forecast.
        traces: give the context depths to time at.
        users: the most who send requests at once.
        pace: how long tokens and prompts take here.
        deadline: for all curves together; fewer batches and repeats are timed where time is short, and the
            last drafters are left out where it ends.
        depth: tokens of other text that stand before the prompts beyond those of the traces.
        fresh: measure costs again, even where stored ones could be reused.

    Raises:
        Failure: a model does not load, or does not fit beside the others; or the first costs took too long.
    """
    build, here = install.describe(), machine.snapshot(install.devices)
    most = _largest_batches(forecastable, users)
    shallow, deep = traces.depths
    by_setup: Curves = {}
    first_curves: dict[Offload, MeasuredCurve] = {}  # the first draft model's
    notes: dict[str, None] = {}
    for number, ((offload, drafter), tokens) in enumerate(most.items()):
        yield Stage(name="measuring costs", done=number, total=len(most))
        spec = replace(first, offload=offload)
        depths = profiles.depths_for(shallow, max(shallow, min(depth + deep, first.context - tokens - 1)))
        measured_on = profiles.of(spec, drafter, build=build, machine=here)
        stored = profiles.find_profile(measured_on, most_tokens=tokens, depths=(depths[0], depths[-1]))
        if stored is not None and not fresh:
            by_setup[offload, drafter] = stored.curve
            if not isinstance(drafter, HeadFile):
                first_curves.setdefault(offload, stored)
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
            profiles.save(measured)
    return by_setup, tuple(notes)


def _largest_batches(arms: Sequence[RunSpec], users: int) -> dict[CostSetup, int]:
    """Return the tokens of the largest batch to time of every drafter and placement."""
    most: dict[CostSetup, int] = {}
    for arm in arms:
        setup, n_max = cost_setup(arm), arm.drafts_by.n_max
        most[setup] = max(n_max + 1, min(most_rows(users, n_max), _LARGEST), most.get(setup, 0))
    return most


def simulate_curves(plan: Plan, arms: Sequence[RunSpec], traces: Traces) -> Curves:
    """Return the costs of configurations on the machine that is simulated, from headers and their places."""
    assert plan.simulated is not None
    layout = memory.layout_for(plan.session.install.build_number)
    _, deep = traces.depths
    made: Curves = {}
    for arm in sorted(arms, key=lambda arm: -arm.drafts_by.n_max):
        if (setup := cost_setup(arm)) in made:
            continue
        settings, drafter = memory.settings_for(arm, layout), arm.draft_source
        card = _read(arm.model)
        run = partial(parts_of, machines=plan.simulated, depth=deep, settings=settings)
        made[setup] = costs.roofline_of_parts(
            run(card, arm.offload, experts=profiles.kept_experts(card)),
            None if drafter is None else run(_read(drafter), arm.offload.drafter_as_target),
            most_tokens=max(arm.drafts_by.n_max + 1, most_rows(plan.users or 1, arm.drafts_by.n_max)),
            depths=(0, deep),
        )
    return made


def _read(model: ModelFile) -> gguf.ModelCard:
    assert model.path is not None
    return gguf.read_card(model.path)


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
    assumed = _RoundSeconds(token_s, draft_s=_ASSUMED_DRAFT * token_s)
    largest = _largest_batches(forecastable, users=1).values()
    return sum(assumed.once((*_FEWER, min(most, _LARGEST)), 2) for most in largest)


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


_SIZES = (1, 4, 16)  # draft sizes γ: between and around these the forecasts are corrected
_MIDDLE = (4,)  # where a forecast alone is asked for: its errors are nearly one shift common to all γ
_SHORT_RUNS = 2  # of one text, whose difference shows what disturbs them
_MOST_SOURCES = 3  # drafters and placements that are measured by themselves


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """What to measure.

    Attributes:
        engine: the engine that the choice will be used with.
        traces: of the prompts to measure on.
        loads: how often each configuration is loaded and measured on all texts.
        is_short: measure one text alone, without drafting and at one middle γ, with one load of each.
        deadline: after which no further configuration is measured.
    """

    engine: Engine
    traces: Traces
    loads: int
    is_short: bool
    deadline: Deadline = NO_DEADLINE


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What the runs of a calibration show.

    Attributes:
        by_setup: the corrected costs of every drafter and placement.
        texts: how many texts of runs are known in tokens, a prompt's from each configuration.
        untraced: how many of these are none of the traced ones, because near-ties fell otherwise.
        text_sd: standard deviation of the logarithm of tokens per round, in runs against traces.
        conditions: the machine's state meanwhile.
        disturbance: standard deviation of log seconds that other programs caused, see
            ``stats.unequal_slowdown``.
    """

    by_setup: Mapping[CostSetup, Calibration]
    texts: int
    untraced: int
    text_sd: float
    conditions: Conditions
    disturbance: float


def calibrate_costs(
    plan: CalibrationPlan, curves: Curves, candidates: Sequence[Prospect]
) -> Generator[Stage, None, Calibrated]:
    """Yield a Stage before each run; return the corrected costs of every drafter and placement.

    The target alone is measured, and the most promising drafters at γ ≈ 1, 4 and 16, with several loads of
    each: loads of the same models differ. The target alone comes first and last, because every speed-up rests
    on it; of several arms that share a baseline, the baseline deserves the most runs (Dunnett 1955). Every
    other time the order of the drafts is reversed, so that drift cancels.
    Costs of the other drafters are corrected by what the target alone shows. Runs that fail are left out, and
    so are those for which there is no time.

    Args:
        plan: what to measure, and in which engine.
        curves: the costs as they were timed.
        candidates: the forecasts by these costs.
    """
    sizes = _MIDDLE if plan.is_short else _SIZES
    ranked = sorted(candidates, key=lambda prospect: -prospect.overall.tokens_per_s.value)
    promising = [*dict.fromkeys(cost_setup(prospect.arm) for prospect in ranked)][:_MOST_SOURCES]
    by_setup = {setup: _arms(setup, candidates, sizes) for setup in promising}
    drafting = list(dict.fromkeys(arm for arms in by_setup.values() for arm in arms))
    alone = list(dict.fromkeys(arm.baseline for arm in drafting))
    texts, loads = plan.traces.texts, plan.loads
    if plan.is_short:
        texts, loads = [*texts[:1]] * _SHORT_RUNS, 1
    of_load = len(drafting) + 2 * len(alone)
    order = [
        arm for load in range(loads) for arm in (*alone, *drafting[:: 1 if load % 2 == 0 else -1], *alone)
    ]
    runs: dict[RunSpec, list[_TextRun]] = {}
    longest_s = 0.0
    with temporary.folder() as scratch, plan.engine, machine.Watch.start() as watch:
        for number, arm in enumerate(order):
            if plan.deadline.is_over() or not plan.deadline.fits(longest_s):
                break
            begun = time.monotonic()
            yield Stage(name="calibrating", done=number, total=len(order))
            if number % of_load == 0:
                plan.engine.close()  # so that everything is loaded anew
            runs.setdefault(arm, []).extend(_measured(plan, arm, texts, scratch / "run"))
            longest_s = max(longest_s, time.monotonic() - begun)
        conditions = watch.conditions()
    disturbance = _disturbance(conditions, drafting)
    corrected: dict[CostSetup, Calibration] = {}
    by_target: dict[frozenset[RunSpec], dict[CostSetup, Calibration]] = {}
    for setup, curve in curves.items():
        baselines = {prospect.arm.baseline for prospect in candidates if cost_setup(prospect.arm) == setup}
        own_runs = [
            run
            for arm, arm_runs in runs.items()
            if cost_setup(arm) == setup or arm in baselines
            for measured in arm_runs
            if (run := _calibration_run(plan, curve, arm, measured)) is not None
        ]
        calibration = forecast.calibrate(curve, own_runs, disturbance=disturbance)
        by_target.setdefault(frozenset(baselines), {})[setup] = calibration
    for calibrations in by_target.values():
        corrected |= _with_one_target(plan.traces.texts[0].target_trace, calibrations)
    n_texts, untraced, text_sd = _compare_texts(plan, curves, runs)
    return Calibrated(
        by_setup=corrected,
        texts=n_texts,
        untraced=untraced,
        text_sd=text_sd,
        conditions=conditions,
        disturbance=disturbance,
    )


def _with_one_target(
    text: DraftTrace, calibrations: Mapping[CostSetup, Calibration]
) -> Iterator[tuple[CostSetup, Calibration]]:
    """Yield calibrations with times scaled so that the target alone is equally fast by all of them.

    The costs of each source were timed and corrected at another moment. Speed-ups are ratios of times of one
    moment; tokens/s of two sources can only be compared where the target has one speed.
    """
    alone_s = {}
    for setup, calibration in calibrations.items():
        paid = forecast.alone(text, calibration.curve, first=0, tokens=len(text.tokens)).paid
        alone_s[setup] = float(paid @ calibration.curve.times_s)
    common_s = geometric_mean(alone_s.values())
    for setup, calibration in calibrations.items():
        yield setup, replace(calibration, curve=calibration.curve.scaled(common_s / alone_s[setup]))


def _disturbance(conditions: Conditions, arms: Iterable[RunSpec]) -> float:
    """Return the standard deviation of log seconds that other programs cause in some kinds of work."""
    if not warnings.was_busy(conditions):
        return 0.0
    threads = max((arm.threads for arm in arms), default=1)
    return stats.unequal_slowdown(conditions.others_cores or 0.0, machine.usable_cores(), threads)


def _compare_texts(
    plan: CalibrationPlan, curves: Curves, runs: Mapping[RunSpec, Sequence[_TextRun]]
) -> tuple[int, int, float]:
    """Compare the texts of the runs with the traced ones; return ``texts``, ``untraced`` and ``text_sd``."""
    texts = untraced = 0
    squares: list[float] = []
    for arm, arm_runs in runs.items():
        first = {
            text_run.text.prompt.id: text_run for text_run in reversed(arm_runs)
        }  # loads repeat the same text
        for text_run in first.values():
            tokens = text_run.sample.tokens
            if tokens is None or not arm.sampling.greedy:
                continue
            texts += 1
            traces = text_run.text.target_trace.texts
            is_traced = any(tokens == trace.tokens[: len(tokens)] for trace in traces)
            untraced += not is_traced
            if arm.drafting is None or not text_run.sample.n_rounds:
                continue
            curve, walk = curves[cost_setup(arm)], plan.traces.run(arm)
            exposures = [
                forecast.drafting(text, curve, walk) for text in plan.traces.of(arm, text_run.text).texts
            ]
            expected = fmean(math.log(run.tokens / run.counts.n_rounds) for run in exposures)
            written = (text_run.sample.decoded or 0) / text_run.sample.n_rounds
            squares.append(0.0 if is_traced else (math.log(written) - expected) ** 2 if written else 0.0)
    return texts, untraced, math.sqrt(fmean(squares)) if squares else 0.0


def _arms(setup: CostSetup, candidates: Sequence[Prospect], sizes: Sequence[int]) -> list[RunSpec]:
    """Return the configurations of a setup whose draft sizes are nearest to some, without p_min."""
    arms = [prospect.arm for prospect in candidates if cost_setup(prospect.arm) == setup]

    def nearest(size: int) -> RunSpec:
        return min(arms, key=lambda arm: (abs(arm.drafts_by.n_max - size), arm.drafts_by.p_min))

    return [*dict.fromkeys(map(nearest, sizes))]


class _TextRun(NamedTuple):
    """A run on a text that ended well, and the number of its load."""

    text: TracedTexts
    sample: Sample
    load: int | None


def _measured(
    plan: CalibrationPlan, arm: RunSpec, texts: Sequence[TracedTexts], log: Path
) -> Iterator[_TextRun]:
    """Measure an arm on each text; the first run after a load warms up, and does not count."""
    specs = [replace(arm, prompt=text.prompt, n_predict=plan.traces.n_predict) for text in texts]

    def measure(spec: RunSpec) -> Measurement:
        with plan.deadline.limiting(plan.engine):
            return plan.engine.measure(spec, log)

    measure(specs[0])
    for text, spec in zip(texts, specs, strict=True):
        if plan.deadline.is_over():
            return
        run = measure(spec)
        if run.sample.status is Status.OK and run.sample.decode_tps:
            yield _TextRun(text, run.sample, run.load)


def _calibration_run(
    plan: CalibrationPlan, curve: CostCurve, arm: RunSpec, run: _TextRun
) -> CalibrationRun | None:
    """Return a run with what it paid by the trace's counts; None where the trace is too short to tell."""
    text, sample, load = run
    assert sample.decode_tps
    if arm.drafting is None:
        tokens = min(sample.decoded or 0, len(text.target_trace.tokens) - 1)
        if tokens < 1:
            return None
        exposure = forecast.alone(text.target_trace, curve, first=1, tokens=tokens)
        return CalibrationRun(arm=arm.key, exposure=exposure, seconds=tokens / sample.decode_tps, load=load)
    exposure = forecast.drafting(plan.traces.of(arm, text), curve, plan.traces.run(arm))
    # a sampled text may differ from the traced one: what counts is the time of a round
    rounds = exposure.counts.n_rounds / sample.n_rounds if sample.n_rounds else 1.0
    seconds = (sample.decoded or 0) / sample.decode_tps * rounds
    if seconds <= 0:
        return None
    return CalibrationRun(arm=arm.key, exposure=exposure, seconds=seconds, load=load)
