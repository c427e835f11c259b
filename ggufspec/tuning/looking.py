"""The forecast of every configuration before any is measured: traces and cost curves in one process."""

from __future__ import annotations

import shlex
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from ggufspec import engines, forecast, units
from ggufspec.domain import ModelFile, Prompt, RunSpec, Traffic
from ggufspec.engines import failures
from ggufspec.engines.library import RoundPart
from ggufspec.forecast import Calibration, profiles, trace
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.notebooks import finish
from ggufspec.prompts import PromptTurns
from ggufspec.serving import count_requests
from ggufspec.tuning import calibrating, pricing, prospects
from ggufspec.tuning.values import Plan, Prospect, Spent, Stage, TuningForecast

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_HELPING = (2, 4, 8)  # draft sizes at which a drafter may help to write
_MIN_GAIN = 2.0  # the speed-up by the theorem from which a drafter helps to write
_BEGINNING = 32  # tokens of the first text that decide whether a drafter helps to write all texts
_SHORT_RUN_S = 0.05  # the time of a run beside its tokens, in an engine that keeps its models loaded


def look(plan: Plan, *, forecast_only: bool = False) -> Generator[Stage, None, TuningForecast]:
    """Trace the prompts, time costs, correct these by a few runs, and forecast; yield a Stage for each step.

    Args:
        plan: what may be chosen.
        forecast_only: nothing will be measured afterwards: one short run of the target corrects the costs.

    Raises:
        GgufspecError: the class that belongs to what failed: a model that does not load, a refused drafter.
    """
    install, program = plan.session.install, engines.ENGINES[plan.session.engine.name]
    arms = prospects.drafting_arms(plan.blocks)
    build, users = install.build_number, plan.users or 1
    known = [arm for arm in arms if prospects.can_forecast(arm, program, build, users=users)]
    drafters = [*dict.fromkeys(arm.draft_source for arm in known if arm.draft_source is not None)]
    one_load = 1 if plan.alone.offload.rpc else None  # at once: a worker serves one program at a time
    inside = prospects.drafts_inside(drafters, plan.alone.pair.target)
    with engines.make(
        "inprocess", install, timeout_s=plan.max_time_s, capacity=one_load, with_mtp=inside
    ) as made:
        engine = cast("InprocessEngine", made)
        try:
            yield Stage(name="loading", done=0, total=1)
            begun = time.monotonic()
            first = replace(_spec(plan, known), prompt=plan.session.suite.prompts[0])
            token_s, shared_s, load_s = measure_speed(engine, first, users)
            reloads = plan.session.engine.load_key(first) is None
            allowed = allow(
                time_s=plan.max_time_s,
                token_s=token_s,
                run_s=load_s if reloads else _SHORT_RUN_S,
                load_s=load_s,
                prompts=len(plan.session.suite.prompts),
                n_predict=first.n_predict,
                users=plan.users,
                shared_s=shared_s,
            )
            texts = yield from _texts(engine, plan, first, drafters, allowed)
            traced = time.monotonic()

            def forecast_all(curves: pricing.Curves, traffic: Traffic | None = None) -> tuple[Prospect, ...]:
                return prospects.prospects(
                    known,
                    texts,
                    drafters,
                    curves,
                    engine=plan.session.engine.name,
                    n_predict=allowed.n_predict,
                    build=install.build_number,
                    traffic=traffic,
                )

            timed = replace(first, prompt=_longest_text(texts))
            curves, notes = yield from pricing.curves(
                engine, plan, timed, known, texts, token_s=token_s, time_s=allowed.costs_s
            )
            further = prospects.beyond_edge(forecast_all(curves), plan.beyond)
            if further:
                known += further
                larger, more = yield from pricing.curves(
                    engine, plan, timed, further, texts, token_s=token_s, time_s=allowed.costs_s
                )
                curves, notes = {**curves, **larger}, (*notes, *more)
        except failures.Failure as failure:
            raise failures.failure_error(
                failure.status, f"the look ahead failed: {failure.reason}"
            ) from failure
    priced = time.monotonic()
    calibrations = yield from calibrating.calibrate_costs(
        calibrating.CalibrationPlan(
            engine=plan.session.engine,
            texts=spread(texts, allowed.calibration_prompts),
            drafters=drafters,
            n_predict=allowed.n_predict,
            build=install.build_number,
            loads=allowed.calibration_loads,
            target_only=forecast_only,
        ),
        curves,
        forecast_all(curves),
    )
    prompts = tuple(text.prompt for text in texts)
    forecasts = forecast_all(
        {place: calibration.curve for place, calibration in calibrations.items()}, plan.plan_traffic(prompts)
    )
    unknown = prospects.with_own_sizes([arm for arm in arms if arm not in known])
    leader = max(forecasts, key=lambda prospect: prospect.overall.tokens_per_s.value, default=None)
    calibration = calibrations[leader.arm.offload, leader.arm.draft_source] if leader is not None else None
    return TuningForecast(
        prospects=forecasts,
        unknown=unknown,
        prompts=prompts,
        n_predict=allowed.n_predict,
        finalists=allowed.finalists,
        spent=Spent(
            traces_s=traced - begun, costs_s=priced - traced, calibration_s=time.monotonic() - priced
        ),
        calibration=calibration,
        notes=(
            *_shortened(plan, first, allowed),
            *dict.fromkeys(notes),
            *_unforecast(unknown),
            *_timed_without(plan.alone),
            *_calibrated(calibration, forecast_only=forecast_only),
        ),
    )


def outlook(plan: Plan, *, forecast_only: bool = False) -> TuningForecast:
    """Return the forecasts, for callers that show no progress; see ``look``."""
    return finish(look(plan, forecast_only=forecast_only))


def _longest_text(texts: Sequence[TracedTexts]) -> Prompt:
    """Return the longest prompt with its answer: costs are timed on a text that was traced."""
    longest = max(texts, key=lambda text: text.target_trace.n_prompt + len(text.target_trace.tokens))
    return replace(longest.prompt, text=longest.prompt.text + longest.text)


def _timed_without(alone: RunSpec) -> Iterator[str]:
    """Say that costs are timed with llama.cpp's default settings, where others were requested."""
    words = shlex.join(alone.runtime.words)
    if words:
        yield f"costs: timed without {words}, which the library cannot apply; calibration corrects for them"


def _calibrated(calibration: Calibration | None, *, forecast_only: bool) -> Iterator[str]:
    """Say what the forecasts were corrected by."""
    if calibration is None:
        return
    if not calibration.runs:
        yield "calibration: no run succeeded, so forecasts rest on the timed costs alone"
        return
    factor = calibration.corrections["machine"].value
    runs = (
        "one short run of the target; without --forecast, drafting is measured too"
        if forecast_only
        else units.counted(calibration.runs, "run")
    )
    yield f"calibration: times are {units.format_factor(factor)} of the timed costs, by {runs}"


def _unforecast(unknown: Sequence[RunSpec]) -> Iterator[str]:
    """Say which methods are measured without a forecast, and at what draft sizes."""
    sizes: dict[str, set[int]] = {}
    for arm in unknown:
        assert arm.drafting is not None
        sizes.setdefault(str(arm.drafting.chain), set()).add(arm.drafting.n_max)
    for method, values in sizes.items():
        at = ", ".join(map(str, sorted(values)))
        yield f"forecast: {method} cannot be forecast; it is measured at γ {at}, beyond it if that is fastest"


def _spec(plan: Plan, known: Sequence[RunSpec]) -> RunSpec:
    """Return the run of the target alone, with the offload of the first configuration that has a drafter."""
    offload = next((arm.offload for arm in known if arm.draft_source is not None), plan.alone.offload)
    return replace(plan.alone, offload=offload)


def measure_speed(engine: InprocessEngine, spec: RunSpec, users: int) -> tuple[float, float, float]:
    """Return the target's seconds per token for one user and for several together, and those of its load."""
    begun = time.monotonic()
    batches = tuple(sorted({1, users}))
    timings = engine.curve(spec, (), batches=batches, depths=(1,), repeats=3).timings
    token_s, batch_s = (
        fmean(
            timing.seconds
            for timing in timings
            if timing.part is RoundPart.VERIFY and timing.tokens == tokens
        )
        for tokens in (1, users)
    )
    load_s = max(0.0, time.monotonic() - begun - sum(timing.seconds for timing in timings))
    return token_s, batch_s / users, load_s


def _texts(
    engine: InprocessEngine, plan: Plan, first: RunSpec, drafters: Sequence[ModelFile], allowed: Budget
) -> Generator[Stage, None, list[TracedTexts]]:
    """Trace the prompts; each later turn of a conversation is a prompt after the target's answers."""
    program = engines.ENGINES[plan.session.engine.name]
    limits = prospects.draft_limits((*prospects.drafting_arms(plan.blocks), *plan.beyond), allowed.n_predict)
    spec = replace(first, n_predict=trace.needed(allowed.n_predict, max(limits.sizes), program))
    texts: list[TracedTexts] = []
    (beginning,) = profiles.traces(engine, replace(spec, n_predict=_BEGINNING), [first.prompt], drafters)
    writing = _quickest(beginning)
    chosen = spread(plan.session.suite.prompts, allowed.prompts)
    for number, prompt in enumerate(chosen):
        yield Stage(name=f"reading ahead · {prompt.id}", done=number, total=len(chosen))
        turns = PromptTurns(prompt, plan.session.render)
        texts += profiles.traces(engine, spec, turns.made, drafters, writing=writing, limits=limits)
        while not turns.is_complete:
            turns.add_answer(texts[-1].text)
            last = turns.made[-1:]
            texts += profiles.traces(engine, spec, last, drafters, writing=writing, limits=limits)
    return texts


def _quickest(beginning: TracedTexts) -> tuple[int, int] | None:
    """Return the place and the draft size of the drafter that makes writing faster; None where none does.

    The closed form takes a verified batch to cost as little as one token, so it must promise a speed-up of 2.
    """
    size = len(beginning.target_trace.tokens)
    gains: dict[tuple[int, int], float] = {}
    for place, (view, look_s) in enumerate(zip(beginning.by_drafter, beginning.look_s, strict=True)):
        if view.is_heads:
            continue
        alpha, cost = sum(view.match) / size, look_s / beginning.written_s
        gains |= {(place, n_max): forecast.closed_form(alpha, n_max, cost) for n_max in _HELPING}
    best = max(gains, key=gains.__getitem__, default=None)
    return best if best is not None and gains[best] >= _MIN_GAIN else None


def _shortened(plan: Plan, first: RunSpec, allowed: Budget) -> list[str]:
    suite = plan.session.suite
    if allowed.prompts == len(suite.prompts) and allowed.n_predict == first.n_predict:
        return []
    of = units.counted(len(suite.prompts), "prompt")
    used = f"{allowed.prompts} of {of} with {units.counted(allowed.n_predict, 'token')} each"
    return [f"time: {used}; a longer --max-time takes more"]


FINALISTS = 6  # configurations that are measured beside the target alone
_FEWEST_FINALISTS = 2
_SHORTEST = 48  # tokens; in shorter texts the last round weighs too much
_FEWEST_PROMPTS = 4
_REPEATS = 2  # measured at least
_ASSUMED_SPEEDUP = 1.3  # of a finalist, before anything is measured
_COSTS_SHARE = 0.15  # of the time, for the cost curve
_CALIBRATION_SHARE = 0.1
_CALIBRATION_PROMPTS = 4  # at most: loads of the same models differ by more than the mean of so many runs
_CALIBRATION_LOADS = 3  # at most, and more of them before more prompts, for the same reason
_CALIBRATION_ARMS = 4  # the target alone, and three draft sizes
_CONFIRMED = 3  # arms: the target alone, the winner and the runner-up
_CONFIRMING_REPEATS = 3  # at least, each with loads of its own


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What fits into the time.

    Attributes:
        prompts: how many prompts are traced and measured.
        n_predict: tokens of each.
        finalists: configurations to measure beside the target alone.
        costs_s: seconds for the cost curves.
        calibration_prompts: prompts on which each load of the calibration is measured.
        calibration_loads: how often each of its configurations is loaded.
    """

    prompts: int
    n_predict: int
    finalists: int
    costs_s: float
    calibration_prompts: int
    calibration_loads: int


def allow(
    *,
    time_s: float | None,
    token_s: float,
    run_s: float,
    load_s: float,
    prompts: int,
    n_predict: int,
    users: int | None = None,
    shared_s: float | None = None,
) -> Budget:
    """Return what fits into a time: first shorter texts, then fewer of them, then fewer finalists.

    Each prompt is answered once for its trace, measured with the target alone and each finalist, and measured
    again with the target alone, the winner and the runner-up.

    Args:
        time_s: seconds for everything; None for no limit.
        token_s: seconds per token of the target alone.
        run_s: other seconds of a measured run, its load included where every run has one of its own.
        load_s: seconds of a load.
        prompts: requested number of prompts.
        n_predict: requested tokens of each.
        users: who send requests at once in the measured runs, each of which is then one load with all of its
            requests; None for one request after another.
        shared_s: seconds per token of the target alone for so many users.
    """
    if time_s is None:
        return Budget(
            prompts=prompts,
            n_predict=n_predict,
            finalists=FINALISTS,
            costs_s=float("inf"),
            calibration_prompts=min(prompts, _CALIBRATION_PROMPTS),
            calibration_loads=_CALIBRATION_LOADS,
        )
    left_s = time_s * (1 - _COSTS_SHARE - _CALIBRATION_SHARE)

    def seconds(prompts: int, n_predict: int, finalists: int) -> float:
        selecting = _REPEATS * (1 + finalists / _ASSUMED_SPEEDUP)
        confirming = _CONFIRMING_REPEATS * (1 + (_CONFIRMED - 1) / _ASSUMED_SPEEDUP)
        runs = _REPEATS * (1 + finalists) + _CONFIRMING_REPEATS * _CONFIRMED
        tracing_s = prompts * n_predict * token_s
        if users is None:
            return tracing_s * (1 + selecting + confirming) + prompts * run_s * runs
        together_s = token_s if shared_s is None else shared_s
        requests_s = count_requests(prompts, users) * n_predict * together_s
        return tracing_s + requests_s * (selecting + confirming) + runs * load_s

    shortest, fewest = min(_SHORTEST, n_predict), min(_FEWEST_PROMPTS, prompts)
    tries = [
        *((prompts, size, FINALISTS) for size in range(n_predict, shortest - 1, -1)),
        *((number, shortest, FINALISTS) for number in range(prompts - 1, fewest - 1, -1)),
        *((fewest, shortest, number) for number in range(FINALISTS - 1, _FEWEST_FINALISTS - 1, -1)),
    ]
    chosen = next(
        (sizes for sizes in tries if seconds(*sizes) <= left_s), (fewest, shortest, _FEWEST_FINALISTS)
    )
    prompt_s = _CALIBRATION_ARMS * (chosen[1] * token_s + run_s)
    affordable = {
        loads: int((time_s * _CALIBRATION_SHARE / loads - _CALIBRATION_ARMS * load_s) / prompt_s) - 1
        for loads in range(1, _CALIBRATION_LOADS + 1)
    }  # prompts, of which each load warms up on one
    loads = max((loads for loads, number in affordable.items() if number >= 1), default=1)
    return Budget(
        prompts=chosen[0],
        n_predict=chosen[1],
        finalists=chosen[2],
        costs_s=time_s * _COSTS_SHARE,
        calibration_prompts=max(1, min(affordable[loads], chosen[0], _CALIBRATION_PROMPTS)),
        calibration_loads=loads,
    )


class _Categorised(Protocol):
    @property
    def category(self) -> str | None: ...


T = TypeVar("T", bound=_Categorised)


def spread(prompts: Sequence[T], number: int) -> tuple[T, ...]:
    """Return ``number`` prompts in their order, taken from each category in turn."""
    by_category: dict[str | None, list[int]] = {}
    for place, prompt in enumerate(prompts):
        by_category.setdefault(prompt.category, []).append(place)
    chosen: set[int] = set()
    while len(chosen) < min(number, len(prompts)):
        for waiting in by_category.values():
            if waiting and len(chosen) < number:
                chosen.add(waiting.pop(0))
    return tuple(prompts[place] for place in sorted(chosen))
