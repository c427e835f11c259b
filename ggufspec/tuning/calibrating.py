"""Small runs in the chosen engine, which tell how its seconds differ from the timed costs."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ggufspec import engines, forecast, machine, stats, temporary
from ggufspec.analysis import warnings
from ggufspec.domain import Conditions, ModelFile, Offload, RunSpec, Sample, Status
from ggufspec.engines import Engine, Measurement
from ggufspec.forecast import Calibration, CalibrationRun, Exposure
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.forecast.trace import DraftTrace
from ggufspec.measure import NO_DEADLINE, Deadline
from ggufspec.tuning import prospects
from ggufspec.tuning.pricing import Curves
from ggufspec.tuning.values import Prospect, Stage

_SIZES = (1, 4, 16)  # draft sizes γ: between and around these the forecasts are corrected
_MIDDLE = (4,)  # where a forecast alone is asked for: its errors are nearly one shift common to all γ
_SHORT_RUNS = 2  # of one text, whose difference shows what disturbs them
_MOST_SOURCES = 3  # drafters and placements that are measured by themselves


@dataclass(frozen=True, kw_only=True)
class CalibrationPlan:
    """What to measure.

    Attributes:
        engine: the engine that the choice will be used with.
        texts: the traces of the prompts to measure on.
        drafters: in the order of the traces.
        n_predict: tokens of each run.
        build: llama.cpp's build number.
        loads: how often each configuration is loaded and measured on all texts.
        is_short: measure one text alone, without drafting and at one middle γ, with one load of each.
        deadline: after which no further configuration is measured.
    """

    engine: Engine
    texts: Sequence[TracedTexts]
    drafters: Sequence[ModelFile]
    n_predict: int
    build: int | None
    loads: int
    is_short: bool
    deadline: Deadline = NO_DEADLINE


CostSetup = tuple[Offload, ModelFile | None]


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What the runs of a calibration show.

    Attributes:
        by_setup: the corrected costs of every drafter and placement.
        texts: how many texts of runs are known in tokens, a prompt's from each configuration.
        untraced: how many of these are none of the traced ones, because near-ties fell otherwise.
        text_sd: standard deviation of the logarithm of tokens per round, in runs against traces.
        conditions: the machine's state meanwhile.
    """

    by_setup: Mapping[CostSetup, Calibration]
    texts: int
    untraced: int
    text_sd: float
    conditions: Conditions


def calibrate_costs(
    plan: CalibrationPlan, curves: Curves, candidates: Sequence[Prospect]
) -> Generator[Stage, None, Calibrated]:
    """Yield a Stage before each run; return the corrected costs of every drafter and placement.

    The target alone is measured, and the most promising drafters at γ ≈ 1, 4 and 16, with several loads of
    each: loads of the same models differ. Every other time their order is reversed, so that drift cancels.
    Costs of the other drafters are corrected by what the target alone shows. Runs that fail are left out, and
    so are those for which there is no time.

    Args:
        plan: what to measure, and in which engine.
        curves: the costs as they were timed.
        candidates: the forecasts by these costs.
    """
    sizes = _MIDDLE if plan.is_short else _SIZES
    by_setup = {setup: _arms(setup, candidates, sizes) for setup in _promising(candidates)}
    arms = {arm.baseline: None for arms in by_setup.values() for arm in arms}
    arms |= {arm: None for arms in by_setup.values() for arm in arms}
    texts, loads = ([*plan.texts[:1]] * _SHORT_RUNS, 1) if plan.is_short else (plan.texts, plan.loads)
    order = [arm for load in range(loads) for arm in (arms if load % 2 == 0 else reversed(arms))]
    runs: dict[RunSpec, list[_TextRun]] = {}
    longest_s = 0.0
    with temporary.folder() as scratch, plan.engine, machine.Watch.start() as watch:
        for number, arm in enumerate(order):
            if plan.deadline.is_over() or not plan.deadline.fits(longest_s):
                break
            begun = time.monotonic()
            yield Stage(name="calibrating", done=number, total=len(order))
            if number % len(arms) == 0:
                plan.engine.close()  # so that everything is loaded anew
            runs.setdefault(arm, []).extend(_measured(plan, arm, texts, scratch / "run"))
            longest_s = max(longest_s, time.monotonic() - begun)
        conditions = watch.conditions()
    disturbance = _disturbance(conditions, arms)
    corrected = {
        setup: forecast.calibrate(
            curve,
            [
                run
                for arm, arm_runs in runs.items()
                if _setup(arm) == setup or arm in _baselines(setup, candidates)
                for measured in arm_runs
                if (run := _calibration_run(plan, curve, arm, measured)) is not None
            ],
            disturbance=disturbance,
        )
        for setup, curve in curves.items()
    }
    return _calibrated(plan, curves, runs, corrected, conditions)


def _disturbance(conditions: Conditions, arms: Iterable[RunSpec]) -> float:
    """Return the standard deviation of log seconds that other programs cause in some kinds of work."""
    if not warnings.was_busy(conditions):
        return 0.0
    threads = max((arm.threads for arm in arms), default=1)
    return stats.unequal_slowdown(conditions.others_cores or 0.0, machine.usable_cores(), threads)


def _calibrated(
    plan: CalibrationPlan,
    curves: Curves,
    runs: Mapping[RunSpec, Sequence[_TextRun]],
    by_setup: Mapping[CostSetup, Calibration],
    conditions: Conditions,
) -> Calibrated:
    """Compare the texts of the runs with the traced ones."""
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
            trace = prospects.find_trace(arm, text_run.text, plan.drafters)
            exposures = [_exposure(plan, curves[_setup(arm)], arm, text) for text in trace.texts]
            expected = fmean(math.log(run.tokens / run.counts.n_rounds) for run in exposures)
            written = (text_run.sample.decoded or 0) / text_run.sample.n_rounds
            squares.append(0.0 if is_traced else (math.log(written) - expected) ** 2 if written else 0.0)
    return Calibrated(
        by_setup=by_setup,
        texts=texts,
        untraced=untraced,
        text_sd=math.sqrt(fmean(squares)) if squares else 0.0,
        conditions=conditions,
    )


def _promising(candidates: Sequence[Prospect]) -> list[CostSetup]:
    ranked = sorted(candidates, key=lambda prospect: -prospect.overall.tokens_per_s.value)
    return [*dict.fromkeys(_setup(prospect.arm) for prospect in ranked)][:_MOST_SOURCES]


def _setup(arm: RunSpec) -> CostSetup:
    return arm.offload, arm.draft_source


def _baselines(setup: CostSetup, candidates: Sequence[Prospect]) -> set[RunSpec]:
    return {prospect.arm.baseline for prospect in candidates if _setup(prospect.arm) == setup}


def _arms(setup: CostSetup, candidates: Sequence[Prospect], sizes: Sequence[int]) -> list[RunSpec]:
    """Return the configurations of a setup whose draft sizes are nearest to some, without p_min."""
    arms = [prospect.arm for prospect in candidates if _setup(prospect.arm) == setup]
    chosen = (min(arms, key=lambda arm: (abs(_size(arm) - size), _p_min(arm))) for size in sizes)
    return [*dict.fromkeys(chosen)]


def _size(arm: RunSpec) -> int:
    assert arm.drafting is not None
    return arm.drafting.n_max


def _p_min(arm: RunSpec) -> float:
    assert arm.drafting is not None
    return arm.drafting.p_min


class _TextRun(NamedTuple):
    """A run on a text that ended well, and the number of its load."""

    text: TracedTexts
    sample: Sample
    load: int | None


def _measured(
    plan: CalibrationPlan, arm: RunSpec, texts: Sequence[TracedTexts], log: Path
) -> Iterator[_TextRun]:
    """Measure an arm on each text; the first run after a load warms up, and does not count."""
    specs = [replace(arm, prompt=text.prompt, n_predict=plan.n_predict) for text in texts]
    own_s = plan.engine.timeout_s

    def measure(spec: RunSpec) -> Measurement:
        plan.engine.timeout_s = plan.deadline.timeout_s(own_s)
        try:
            return plan.engine.measure(spec, log)
        finally:
            plan.engine.timeout_s = own_s

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
    exposure = _exposure(plan, curve, arm, prospects.find_trace(arm, text, plan.drafters))
    # a sampled text may differ from the traced one: what counts is the time of a round
    rounds = exposure.counts.n_rounds / sample.n_rounds if sample.n_rounds else 1.0
    seconds = (sample.decoded or 0) / sample.decode_tps * rounds
    if seconds <= 0:
        return None
    return CalibrationRun(arm=arm.key, exposure=exposure, seconds=seconds, load=load)


def _exposure(plan: CalibrationPlan, curve: CostCurve, arm: RunSpec, trace: DraftTrace) -> Exposure:
    assert arm.drafting is not None
    program = engines.ENGINES[plan.engine.name]
    return forecast.drafting(
        trace,
        curve,
        n_max=arm.drafting.n_max,
        p_min=arm.drafting.p_min,
        method=arm.drafting.method,
        program=program,
        n_predict=plan.n_predict,
        sampling=prospects.samples_exactly(arm, plan.engine.name, program),
        build=plan.build,
    )
