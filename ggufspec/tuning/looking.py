"""The forecast of every configuration before any is measured: traces and cost curves in one process."""

from __future__ import annotations

import logging
import math
import shlex
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, cast

from ggufspec import engines, forecast, machine, units
from ggufspec.analysis import warnings
from ggufspec.domain import Failure, HeadFile, ModelFile, Program, Prompt, RunSpec, Status
from ggufspec.engines import failure_error
from ggufspec.engines.library import RoundPart
from ggufspec.errors import GgufspecError, InconclusiveError, TimeLimitError
from ggufspec.forecast import Calibration, costs, profiles, trace
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.measure import Deadline
from ggufspec.prompts import PromptTurns
from ggufspec.steps import finish
from ggufspec.tuning import budgeting, calibrating, prospects, untraced
from ggufspec.tuning.budgeting import Budget, Pace
from ggufspec.tuning.calibrating import Calibrated
from ggufspec.tuning.values import Plan, Prospect, Spent, Stage, TuningForecast, cost_setup

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine
    from ggufspec.llama.install import Install

_LOG = logging.getLogger("ggufspec")  # `-v` shows it
_HELPING = (2, 4, 8)  # draft sizes at which a drafter may help to write
_MIN_GAIN = 2.0  # the speed-up by the theorem from which a drafter helps to write
_BEGINNING = 32  # tokens of the first text that decide whether a drafter helps to write all texts
_SHORT_RUN_S = 0.05  # the time of a run beside its tokens, in an engine that keeps its models loaded
_START_S = 0.5  # of a server beside its loads: its process, and the wait until it answers
_SPEED_REPEATS = 2  # each gives two samples of a token
_BEGINNING_SHARE = 0.5  # of what a run may take
_STAGE_SLACK = 1.5  # of the planned seconds: what a stage may take before it ends with what it has
_TRACES_SLACK = 4.0  # more for traces, up to what a run may take: a lost prompt weighs more
_RANGED = 30  # configurations whose rounds are bounded, which takes some ms for each; as many are printed
_COUNTED, _COUNTED_TOKENS = 4, 96  # texts whose experts are counted, and tokens of each
_COUNTING_SHARE = 0.05  # of the time limit
_LONGER = 4  # times the limit, which is tried next where a quarter of it was not enough for one step


def forecast_configurations(plan: Plan) -> Generator[Stage, None, TuningForecast]:
    """Trace the prompts, time costs, correct these by a few runs, and forecast; yield a Stage for each step.

    Where no library can trace, see ``untraced``.

    Raises:
        GgufspecError: the class that belongs to what failed: a model that does not load, a refused drafter.
        InconclusiveError: with ``plan.forecast_only``, other programs left a thread no core of its own.
    """
    forecast_them = _forecast_traced if plan.why_untraced is None else untraced.plan_measuring
    try:
        return (yield from forecast_them(plan))
    except Failure as failure:
        raise explain_failure(failure, plan.deadline) from failure


def _forecast_traced(plan: Plan) -> Generator[Stage, None, TuningForecast]:
    install, users = plan.session.install, plan.users or 1
    arms = prospects.drafting_arms(plan.blocks)
    forecastable = _forecastable(plan, arms)
    drafters = [*dict.fromkeys(arm.draft_source for arm in forecastable if arm.draft_source is not None)]
    one_load = 1 if plan.alone.offload.rpc else None  # at once: a worker serves one program at a time
    with open_library(install, drafters, plan.alone.pair.target, capacity=one_load) as engine:
        yield Stage(name="loading", done=0, total=1)
        begun = time.monotonic()
        offloads = (arm.offload for arm in forecastable if arm.draft_source is not None)
        first = replace(
            _placed_here(plan, replace(plan.alone, offload=next(offloads, plan.alone.offload))),
            prompt=plan.session.suite.prompts[0],
        )
        program = engines.ENGINES[plan.session.engine.name]
        start = measure_start(engine, first, drafters, plan.deadline, program=program, users=users)
        pace = _pace(plan, start, forecastable)
        wanted = plan.wanted(
            finalists=budgeting.FINALISTS,
            costs_s=calibrating.least_seconds(forecastable, start.pace.token_s),
        )
        _LOG.info("%s", pace)
        budget = budgeting.plan_budget(plan.deadline, pace, wanted)
        _LOG.info("%s", budget)
        fits = tuple(budgeting.describe_budget(budget, wanted, plan.deadline))
        yield Stage(name="tracing", done=0, total=budget.prompts, notes=fits)
        traces = prospects.Traces(
            texts=(yield from _texts(engine, plan, first, drafters, budget, start)),
            drafters=drafters,
            engine=plan.session.engine.name,
            n_predict=budget.n_predict,
            build=install.build_number,
        )
        traced = time.monotonic()
        if plan.simulated is not None:
            simulated = calibrating.simulate_curves(plan, forecastable, traces)
            return _simulated(plan, prospects.prospects(forecastable, traces, simulated), traces, budget)
        before_measuring = plan.deadline.reserve(budgeting.least_measuring_s(pace, wanted, plan.deadline))
        costing = before_measuring.stage(budget.costs_s * _STAGE_SLACK)
        time_costs = partial(
            calibrating.curves,
            engine,
            install,
            replace(first, prompt=_longest_text(traces.texts)),
            traces=traces,
            users=users,
            pace=pace,
            deadline=costing,
            fresh=plan.fresh,
        )
        curves, notes = yield from time_costs(forecastable=forecastable)
        left_out = [arm for arm in forecastable if cost_setup(arm) not in curves]
        forecastable = [arm for arm in forecastable if cost_setup(arm) in curves]
        timed = prospects.prospects(forecastable, traces, curves)
        further = prospects.beyond_edge(timed, plan.beyond)
        if further and not costing.is_over():
            larger, more = yield from time_costs(forecastable=further)
            forecastable += [arm for arm in further if cost_setup(arm) in larger]
            curves, notes = {**curves, **larger}, (*notes, *more)
            timed = prospects.prospects(forecastable, traces, curves)
    priced = time.monotonic()
    calibrated = yield from calibrating.calibrate_costs(
        calibrating.CalibrationPlan(
            engine=plan.session.engine,
            traces=replace(traces, texts=budgeting.spread(traces.texts, budget.calibration_prompts)),
            loads=budget.calibration_loads,
            is_short=plan.forecast_only,
            deadline=before_measuring.stage(budget.calibration_s * _STAGE_SLACK),
        ),
        curves,
        timed,
    )
    if plan.forecast_only:
        _refuse_crowded(plan, calibrated)
    corrected = {place: calibration.curve for place, calibration in calibrated.by_setup.items()}
    traffic = plan.plan_traffic(traces.prompts)
    forecasts = prospects.prospects(
        forecastable,
        traces,
        corrected,
        traffic,
        text_sd=calibrated.text_sd,
        disturbance=calibrated.disturbance,
    )
    if plan.users is None and plan.alone.sampling.greedy:
        forecasts = prospects.with_round_ranges(forecasts, traces, most=_RANGED)
    known = {*forecastable, *left_out}
    others = prospects.groups([arm for arm in arms if arm not in known and not arm.drafts_by.p_min])
    unknown = tuple(map(prospects.with_own_size, others.values()))
    leader = max(forecasts, key=lambda prospect: prospect.overall.tokens_per_s.value, default=None)
    calibration = None if leader is None else calibrated.by_setup[cost_setup(leader.arm)]
    return TuningForecast(
        prospects=forecasts,
        unknown=unknown,
        prompts=traces.prompts,
        n_predict=budget.n_predict,
        finalists=budget.finalists,
        pace=pace,
        spent=Spent(
            traces_s=traced - begun, costs_s=priced - traced, calibration_s=time.monotonic() - priced
        ),
        calibration=calibration,
        notes=(
            *_shortened(traces.texts, budget),
            *dict.fromkeys(
                f"time: {'methods without a drafter' if source is None else source.filename} left out, "
                "because --max-time was too short to time what it costs"
                for source in (arm.draft_source for arm in left_out)
            ),
            *dict.fromkeys(notes),
            *_unforecast(unknown),
            *_timed_without(plan.alone),
            *_calibrated(calibration, calibrated, forecast_only=plan.forecast_only),
            *_texts_note(traces.texts, calibrated),
        ),
    )


def _forecastable(plan: Plan, arms: Sequence[RunSpec]) -> list[RunSpec]:
    """Return the configurations that the library can forecast."""
    install, program = plan.session.install, engines.ENGINES[plan.session.engine.name]
    heads, users = engines.check_library(install).heads, plan.users or 1
    found = [
        arm
        for arm in arms
        if prospects.can_forecast(arm, program, install.build_number, heads=heads, users=users)
    ]
    if plan.simulated is None:
        return found
    return [
        arm for arm in found if not isinstance(arm.draft_source, HeadFile)
    ]  # headers do not tell its costs


def _simulated(
    plan: Plan, forecasts: tuple[Prospect, ...], traces: prospects.Traces, budget: Budget
) -> TuningForecast:
    """Return forecasts by the costs of a simulated machine; what cannot be forecast is left out."""
    known = {prospect.arm for prospect in forecasts}
    return TuningForecast(
        prospects=forecasts,
        unknown=(),
        prompts=traces.prompts,
        n_predict=budget.n_predict,
        finalists=budget.finalists,
        spent=Spent(),
        notes=(
            *_shortened(traces.texts, budget),
            *dict.fromkeys(
                f"simulated: {arm.drafts_by.chain} cannot be forecast and is left out"
                for arm in prospects.drafting_arms(plan.blocks)
                if arm not in known
            ),
        ),
    )


def has_uncounted_experts(plan: Plan) -> bool:
    """Whether the target is a mixture, and how many experts its texts need was not counted yet."""
    if plan.mixture is None or plan.why_untraced is not None:
        return False
    return plan.fresh or profiles.kept_experts(plan.mixture) is None


def count_experts(plan: Plan) -> Generator[Stage, None, None]:
    """Count the experts that batches of the target's own texts need, and store that; yield a Stage for each.

    Nothing is stored where the time is too short, or where the texts are.
    """
    assert plan.mixture is not None
    spec = replace(_placed_here(plan, plan.alone), n_predict=min(plan.alone.n_predict, _COUNTED_TOKENS))
    chosen = budgeting.take_turns(plan.session.suite.prompts)[:_COUNTED]
    stage = plan.deadline.stage((plan.deadline.limit_s or 0.0) * _COUNTING_SHARE)
    texts = []
    with open_library(plan.session.install, (), plan.alone.pair.target) as engine:
        for number, prompt in enumerate(chosen):
            yield Stage(name=f"counting experts · {prompt.id}", done=number, total=len(chosen))
            engine.timeout_s = stage.timeout_s()
            try:
                (text,) = profiles.traces(engine, spec, [prompt], ())
                texts.append(engine.experts(replace(spec, prompt=prompt), text.target_trace.tokens).layers)
            except Failure as failure:
                _LOG.info("experts were not counted: %s", failure.reason)
                break
            if stage.is_over():
                break
    use = costs.count_experts(texts, plan.mixture.n_experts)
    if use is not None:
        profiles.keep_experts(plan.mixture, use)


def _placed_here(plan: Plan, spec: RunSpec) -> RunSpec:
    """Return a run at its places, or on this machine's processor where its own machine is simulated."""
    return spec if plan.simulated is None else replace(spec, offload=spec.offload.on_processor)


def open_library(
    install: Install, drafters: Sequence[ModelFile], target: ModelFile, *, capacity: int | None = None
) -> InprocessEngine:
    """Return what traces and times these drafters: llama.cpp's library. See ``engines.make``."""
    inside = prospects.drafts_inside(drafters, target)
    return cast("InprocessEngine", engines.make("inprocess", install, capacity=capacity, with_mtp=inside))


def outlook(plan: Plan) -> TuningForecast:
    """Return the forecasts, for callers that show no progress; see ``forecast_configurations``."""
    return finish(forecast_configurations(plan))


def _longest_text(texts: Sequence[TracedTexts]) -> Prompt:
    """Return the longest prompt with its answer: costs are timed on a text that was traced."""
    longest = max(texts, key=lambda text: text.target_trace.n_prompt + len(text.target_trace.tokens))
    return replace(longest.prompt, text=longest.prompt.text + longest.text)


def _timed_without(alone: RunSpec) -> Iterator[str]:
    """Say that costs are timed with llama.cpp's default settings, where others were requested."""
    words = shlex.join(alone.runtime.of_texts.words)
    if words:
        yield f"costs: timed without {words}, which the library cannot apply; calibration corrects for them"


def _refuse_crowded(plan: Plan, calibrated: Calibrated) -> None:
    """Make sure that every thread had a core of its own.

    Raises:
        InconclusiveError: none had; then threads wait for each other, and times say nothing of other times.
    """
    others = calibrated.conditions.others_cores or 0.0
    cores = machine.usable_cores()
    if warnings.is_crowded(cores, threads=plan.alone.threads, busy_cores=others):
        raise InconclusiveError(
            f"there is no forecast: other programs used {others:.1f} of {units.counted(cores, 'core')}, "
            f"so that {units.counted(plan.alone.threads, 'thread')} waited for each other",
            "stop other programs, or use fewer --threads",
        )


def _texts_note(texts: Sequence[TracedTexts], calibrated: Calibrated) -> Iterator[str]:
    """Say where near-ties make the text another one, and what that means for the forecasts."""
    twofold = sum(text.target_trace.other is not None for text in texts)
    if twofold:
        yield (
            f"texts: batches of several tokens write another text than single tokens for {twofold} of "
            f"{units.counted(len(texts), 'prompt')}, by near-ties; forecasts are the mean of both"
        )
    if calibrated.untraced:
        change = units.format_percent(math.expm1(calibrated.text_sd))
        yield (
            f"texts: {calibrated.untraced} of {units.counted(calibrated.texts, 'text')} of the calibration "
            f"are none of the traced ones, by near-ties; intervals allow for {change} in tokens per round"
        )


def _calibrated(
    calibration: Calibration | None, calibrated: Calibrated, *, forecast_only: bool
) -> Iterator[str]:
    """Say what the forecasts were corrected by."""
    if calibration is None:
        return
    if not calibration.runs:
        yield "calibration: no run succeeded, so forecasts rest on the timed costs alone"
        return
    factor = calibration.corrections["machine"].value
    runs = (
        "short runs of the target alone and at one draft size; without --forecast, there are more"
        if forecast_only
        else units.counted(calibration.runs, "run")
    )
    yield f"calibration: times are {units.format_factor(factor)} of the timed costs, by {runs}"
    if warnings.was_busy(calibrated.conditions):
        yield "calibration: other programs used the processor meanwhile, so that intervals are wider"


def _unforecast(unknown: Sequence[RunSpec]) -> Iterator[str]:
    """Say which methods are measured without a forecast, and at what draft sizes."""
    sizes: dict[str, set[int]] = {}
    for arm in unknown:
        sizes.setdefault(str(arm.drafts_by.chain), set()).add(arm.drafts_by.n_max)
    for method, values in sizes.items():
        at = ", ".join(map(str, sorted(values)))
        yield f"forecast: {method} cannot be forecast; it is measured at γ {at}, beyond it if that is fastest"


def explain_failure(failure: Failure, deadline: Deadline) -> GgufspecError:
    """Return the error for a look ahead that failed: by the time limit, or by itself."""
    if failure.status is Status.TIMED_OUT and deadline.limit_s is not None:
        longest = units.format_duration(deadline.longest_run_s)
        return TimeLimitError(
            f"{deadline.describe()} is too short for this model on this machine: loading it, or reading one "
            f"prompt, took more than {longest}, a quarter of it",
            f"try --max-time {units.duration_option(units.round_up_duration(deadline.limit_s * _LONGER))}",
        )
    return failure_error(failure.status, f"forecasting failed: {failure.reason}")


def _pace(plan: Plan, start: FirstTimings, forecastable: Sequence[RunSpec]) -> Pace:
    """Return how long runs take in the chosen engine, by the first timings in the library."""
    arms = forecastable or prospects.drafting_arms(plan.blocks)
    methods = {arm.drafting.chain: arm for arm in arms if arm.drafting is not None}
    load_s = start.pace.load_s + _START_S
    # The finalists are not known yet. Where some configurations keep their models loaded, all are taken to do
    # so: ``running`` plans both benches again for the finalists, and leaves out what does not fit.
    reloads = all(plan.session.engine.load_key(arm) is None for arm in methods.values())
    suite = plan.session.suite
    return replace(
        start.pace,
        load_s=load_s,
        prompt_s=start.pace.prompt_s * budgeting.mean_reading(suite.prompts, is_warm=suite.warm_turns),
        run_s=_SHORT_RUN_S + load_s * reloads,
    )


class FirstTimings(NamedTuple):
    """How long the first load, the first tokens and the first prompt took, and the text that was traced."""

    pace: Pace
    beginning: TracedTexts


def measure_start(
    engine: InprocessEngine,
    spec: RunSpec,
    drafters: Sequence[ModelFile],
    deadline: Deadline,
    *,
    program: Program,
    users: int = 1,
) -> FirstTimings:
    """Time the loads, some tokens, and the beginning of an answer; each within what a run may take.

    Raises:
        Failure: a model does not load, or something takes too long.
    """
    engine.timeout_s = deadline.timeout_s()
    load_s = engine.load(spec)
    engine.timeout_s = deadline.timeout_s()
    batches = tuple(sorted({1, users}))
    timings = engine.curve(spec, (), batches=batches, depths=(1,), repeats=_SPEED_REPEATS).timings
    token_s, batch_s = (
        fmean(
            timing.seconds
            for timing in timings
            if timing.part is RoundPart.VERIFY and timing.tokens == tokens
        )
        for tokens in (1, users)
    )
    engine.timeout_s = deadline.timeout_s()
    load_s += engine.load(spec, drafters)
    engine.timeout_s = deadline.timeout_s()
    affordable = deadline.longest_run_s * _BEGINNING_SHARE / token_s
    size = _BEGINNING if affordable >= _BEGINNING else max(1, int(affordable))
    begun = time.monotonic()
    short = replace(spec, n_predict=size)
    (beginning,) = profiles.traces(engine, short, [spec.prompt], drafters, program=program, twice=users == 1)
    wall_s = time.monotonic() - begun
    evaluating_s = beginning.written_s + sum(beginning.look_s) + beginning.other_s
    pace = Pace(
        token_s=token_s,
        shared_s=batch_s / users,
        load_s=load_s,
        prompt_s=max(0.0, wall_s - evaluating_s),
        trace_token_s=evaluating_s / max(1, len(beginning.target_trace.tokens)),
    )
    return FirstTimings(pace, beginning)


def _texts(
    engine: InprocessEngine,
    plan: Plan,
    first: RunSpec,
    drafters: Sequence[ModelFile],
    budget: Budget,
    start: FirstTimings,
) -> Generator[Stage, None, list[TracedTexts]]:
    """Trace the prompts; each later turn of a conversation is a prompt after the target's answers.

    The first prompt is always traced, and the others as long as there is time: of each category in turn, so
    that none is left out.

    Raises:
        Failure: the first prompt could not be traced.
    """
    program = engines.ENGINES[plan.session.engine.name]
    limits = prospects.draft_limits((*prospects.drafting_arms(plan.blocks), *plan.beyond), budget.n_predict)
    spec = replace(first, n_predict=trace.needed(budget.n_predict, max(limits.sizes), program))
    texts: list[TracedTexts] = []
    writing = _quickest(start.beginning)
    suite = plan.session.suite.prompts
    chosen = budgeting.take_turns(budgeting.affordable_prompts(suite, budget))
    most_s = max(
        budget.traces_s * _STAGE_SLACK, min(budget.traces_s * _TRACES_SLACK, plan.deadline.longest_run_s)
    )
    stage = plan.deadline.stage(most_s)

    def trace_prompts(prompts: Sequence[Prompt]) -> Iterator[TracedTexts]:
        return profiles.traces(
            engine,
            spec,
            prompts,
            drafters,
            writing=writing,
            limits=limits,
            program=program,
            twice=plan.users is None,  # requests of several users are forecast from one text
        )

    longest_s = 0.0
    for number, prompt in enumerate(chosen):
        if texts and not stage.fits(longest_s):
            break
        yield Stage(name=f"tracing · {prompt.id}", done=number, total=len(chosen))
        begun = time.monotonic()
        engine.timeout_s = plan.deadline.timeout_s()
        conversation = PromptTurns(prompt, plan.session.render, warm=plan.session.suite.warm_turns)
        try:
            texts += trace_prompts(conversation.made)
            while not conversation.is_complete:
                conversation.add_answer(texts[-1].text)
                last = conversation.made[-1:]
                engine.timeout_s = plan.deadline.timeout_s()
                texts += trace_prompts(last)
        except Failure as failure:
            if failure.status is not Status.TIMED_OUT or not texts or plan.deadline.limit_s is None:
                raise
            break
        longest_s = max(longest_s, time.monotonic() - begun)
    order = {prompt.id: index for index, prompt in enumerate(suite)}
    return sorted(texts, key=lambda text: order.get(text.prompt.id.partition("#")[0], 0))


def _quickest(beginning: TracedTexts) -> tuple[int, int] | None:
    """Return the place and the draft size of the drafter that makes writing faster; None where none does.

    The closed form takes a verified batch to cost as little as one token, so it must promise a speed-up of 2.
    """
    size = len(beginning.target_trace.tokens)
    gains: dict[tuple[int, int], float] = {}
    for index, (view, look_s) in enumerate(zip(beginning.by_drafter, beginning.look_s, strict=True)):
        if view.is_heads:
            continue
        alpha, cost = sum(view.match) / size, look_s / beginning.written_s
        gains |= {(index, n_max): forecast.closed_form(alpha, n_max, cost) for n_max in _HELPING}
    best = max(gains, key=gains.__getitem__, default=None)
    return best if best is not None and gains[best] >= _MIN_GAIN else None


def _shortened(texts: Sequence[TracedTexts], budget: Budget) -> list[str]:
    """Say where fewer prompts could be read than were planned."""
    if math.isinf(budget.total_s) or len(texts) >= budget.prompts:
        return []
    return [f"time: {len(texts)} of {units.counted(budget.prompts, 'prompt')}; more need a longer --max-time"]
