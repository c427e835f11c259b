"""The straight line of a tuning: request -> plan -> outlook -> finalists measured -> verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import Any

from ggufspec import machine, units
from ggufspec.domain import RunSpec
from ggufspec.errors import InconclusiveError
from ggufspec.forecast import profiles
from ggufspec.measure import Block, Request, RunPlan, Session, api, fetch_models, traffic
from ggufspec.notebooks import check_options
from ggufspec.results import ResultSet, write_configuration
from ggufspec.tuning import looking, prospects, recommending, serving, values, verdicts
from ggufspec.tuning.planning import TuneRequest, default, identify, prepare_tuning
from ggufspec.tuning.values import Plan, Prospect, Selection, Tuned, TuningForecast

_TUNING_OPTIONS = {
    "max_time": "max_time_s",
    "precision": "precision",
    "vram": "vram_bytes",
    "fresh": "fresh",
    "serve_ctx": "serve_ctx",
    "serve_parallel": "serve_parallel",
    "quantize_drafter": "quantize_drafter",
}
_REPEATS = 2  # of the selection
_CONFIRMING_REPEATS = 3  # at least, each with loads of its own
_SELECTION_SHARE = 0.5  # of the time that is left after the forecast; the rest confirms
_AGAIN_SHARE = 0.5  # of the complete time: at least so much is left to measure again where runs are unusable
_SLACK = 2.5  # of what one repeat should take by the forecast: loads, warm-ups, a busy machine
_LOAD_S = 5.0
_QUIETER = "stop other programs, or allow more time with --max-time, and tune again"
_OURS = 0.97  # of the time; the rest goes to what stands before and after: checks, the last run, the judge


def finals(plan: Plan, outlook: TuningForecast, *, measuring_s: float = 0.0) -> Session:
    """Return the bench that selects: the target alone and the finalists, on the prompts that were traced.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        measuring_s: seconds of measurements before it.
    """
    worth = prospects.finalists(outlook.prospects, outlook.finalists) if outlook.prospects else ()
    chosen = {*(prospect.arm for prospect in worth), *outlook.unknown}
    left_s = _left_s(plan, outlook, measuring_s=measuring_s)
    if left_s is not None:
        left_s = max(_once_s(plan, outlook, worth), left_s * _SELECTION_SHARE)
    return _bench(plan, outlook, chosen, repeats=_REPEATS, max_time_s=left_s)


def follow_edge(
    plan: Plan, outlook: TuningForecast, selected: ResultSet, *, measuring_s: float
) -> Session | None:
    """Return the bench of larger draft sizes beside the finalists; None where the best is not at the edge.

    It continues the stored bench, whose runs are not repeated. There is none where time is short.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        selected: the finalists' runs.
        measuring_s: seconds since the first of them.
    """
    selection = verdicts.select_arms(selected)
    if selection.edge is None or selection.fastest is None:
        return None
    arms = (*prospects.drafting_arms(plan.blocks), *plan.beyond)
    larger = prospects.next_larger(selection.fastest, arms)
    left_s = _left_s(plan, outlook, measuring_s=measuring_s)
    measured = {arm for arm in arms if verdicts.was_measured(arm, selected)}
    needed_s = measuring_s * len(larger) / max(1, len(measured))
    if not larger or (left_s is not None and needed_s > left_s * _SELECTION_SHARE):
        return None
    return _bench(plan, outlook, {*measured, *larger}, repeats=_REPEATS, max_time_s=left_s)


def confirmation(plan: Plan, outlook: TuningForecast, selection: Selection, *, measuring_s: float) -> Session:
    """Return the bench that confirms: the target alone, the winner, the runner-up and those of categories.

    Its runs are new, and its models are loaded again, so that luck in the selection does not affect them.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        selection: what to confirm.
        measuring_s: seconds since the selection began.
    """
    selected = [selection.winner, selection.runner_up, *selection.by_category.values()]
    arms = (*prospects.drafting_arms(plan.blocks), *plan.beyond)
    chosen = {arm for arm in arms if any(spec and values.is_same(arm, spec) for spec in selected)}
    left_s = _left_s(plan, outlook, measuring_s=measuring_s)
    if left_s is not None:
        worth = [prospect for prospect in outlook.prospects if prospect.arm in chosen]
        left_s = max(_once_s(plan, outlook, worth), left_s)
    return _bench(
        plan,
        outlook,
        chosen,
        repeats=_CONFIRMING_REPEATS,
        max_time_s=left_s,
        precision=plan.precision,
        seed=plan.session.suite.seed + 1,
    )


def _bench(
    plan: Plan,
    outlook: TuningForecast,
    chosen: Set[RunSpec],
    *,
    repeats: int,
    max_time_s: float | None,
    precision: float | None = None,
    seed: int | None = None,
) -> Session:
    """Return a bench of the target alone and some configurations, on the prompts that were traced."""
    blocks = []
    for block in plan.blocks:
        alone, *others = (*block.arms, *(arm for arm in plan.beyond if arm.baseline == block.arms[0]))
        arms = (alone, *(arm for arm in others if arm in chosen))
        blocks.append(Block(arms=tuple(replace(arm, n_predict=outlook.n_predict) for arm in arms)))
    requests = plan.plan_traffic(outlook.prompts)
    if requests is not None:
        blocks = [
            Block(
                arms=tuple(replace(arm, traffic=requests, context=plan.serving.context) for arm in block.arms)
            )
            for block in blocks
        ]
    first, *more = blocks  # the target alone is measured where it is fastest, whatever else is
    suite = RunPlan(
        blocks=(first, *(block for block in more if len(block.arms) > 1)),
        prompts=outlook.prompts,
        warmup_prompts=plan.session.suite.warmup_prompts[:1],
        repeats=repeats,
        loads=plan.session.suite.loads and repeats,
        warmups=1,
        seed=plan.session.suite.seed if seed is None else seed,
        precision=precision,
        max_time_s=max_time_s,
    )
    if requests is not None:
        suite = traffic.plan_runs(suite)
    return replace(plan.session, suite=suite)


def _left_s(plan: Plan, outlook: TuningForecast, *, measuring_s: float) -> float | None:
    """Return the seconds that are left to measure; None without a limit."""
    if plan.max_time_s is None:
        return None
    return max(0.0, plan.max_time_s * _OURS - outlook.spent.total_s - measuring_s)


def _once_s(plan: Plan, outlook: TuningForecast, worth: Sequence[Prospect]) -> float:
    """Return the seconds that every configuration needs to be measured once, so that there is a verdict."""
    requests = plan.plan_traffic(outlook.prompts)
    answers = len(outlook.prompts) if requests is None else requests.n_requests
    rates = [prospect.overall.tokens_per_s.value for prospect in worth]
    rates += [worth[0].overall.target_tokens_per_s.value] if worth else []
    writing = sum(answers * outlook.n_predict / rate for rate in rates)
    return _LOAD_S + _SLACK * writing


def tune(request: TuneRequest | None = None, **options: Any) -> Tuned:
    """Find the fastest way to run a target, as ``ggufspec tune`` does.

    Args:
        request: what to choose from; without it, ``options`` are fields of Request, e.g. ``draft=(1, 2, 3)``.
        **options: fields of Request, and ``max_time``, ``precision``, ``vram`` and ``fresh`` for those of
            TuneRequest.

    Raises:
        TypeError: an option is unknown; the most similar one is named.
        GgufspecError: something cannot work; failing runs of finalists are rows instead.
    """
    known = {field.name for field in fields(Request)} | _TUNING_OPTIONS.keys()
    check_options("tune", options, [] if request else sorted(known))
    asked = request or _asked(options)
    named = asked.request.with_head()
    models = fetch_models(named.models, named.access)
    plan = identify(prepare_tuning(replace(asked, request=named.with_models(models))))
    command = ("ggufspec.tune", repr(asked))
    steps = measure_finalists(plan, looking.outlook(plan))
    stored: ResultSet | None = None
    while True:
        try:
            stage = steps.send(stored)
        except StopIteration as end:
            tuned: Tuned = serving.serve(plan, end.value)
            keep(tuned)
            return tuned
        stored = measure_bench(stage.session, command, resume=stage.resume)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A bench that a tuning needs next.

    Attributes:
        session: what to measure.
        resume: the stored bench that it continues; None for a new one.
        confirms: whether its figures are the verdict.
        note: why it is measured again; None for the first time.
    """

    session: Session
    resume: str | None = None
    confirms: bool = False
    note: str | None = None


def measure_finalists(plan: Plan, outlook: TuningForecast) -> Generator[Bench, ResultSet | None, Tuned]:
    """Yield each bench to measure, take its results, and return the verdict.

    Where no run of the target alone can be used, the bench is measured once more, with at most one thread
    fewer than there are free cores, and with up to half of the complete time in addition.

    Raises:
        InconclusiveError: nor can any run of that bench be used.
    """
    begun = time.monotonic()

    def elapsed_s() -> float:
        return time.monotonic() - begun

    selected = yield Bench(session=finals(plan, outlook))
    assert selected is not None
    if (cause := verdicts.why_unusable(selected)) is not None:
        plan, outlook, note = _with_fewer_threads(plan, outlook, cause)
        again_s = _before_again_s(plan, outlook, elapsed_s())
        selected = yield Bench(session=finals(plan, outlook, measuring_s=again_s), note=note)
        assert selected is not None
        _refuse_unusable(selected, outlook)
    while further := follow_edge(plan, outlook, selected, measuring_s=elapsed_s()):
        selected = yield Bench(session=further, resume=selected.meta.id)
        assert selected is not None
    selection = verdicts.select_arms(selected)
    confirming = confirmation(plan, outlook, selection, measuring_s=elapsed_s())
    confirmed = yield Bench(session=confirming, confirms=True)
    assert confirmed is not None
    if (cause := verdicts.why_unusable(confirmed)) is not None:
        plan, outlook, note = _with_fewer_threads(plan, outlook, cause)
        again_s = _before_again_s(plan, outlook, elapsed_s())
        confirming = confirmation(plan, outlook, selection, measuring_s=again_s)
        confirmed = yield Bench(session=confirming, confirms=True, note=note)
        assert confirmed is not None
        _refuse_unusable(confirmed, outlook)
    return verdicts.judge_finalists(outlook, selection, confirmed, measuring_s=elapsed_s())


def _with_fewer_threads(plan: Plan, outlook: TuningForecast, cause: str) -> tuple[Plan, TuningForecast, str]:
    """Return what to measure again beside other programs, and a note that says so."""
    free = machine.usable_cores() - machine.busy_cores()
    threads = min(plan.alone.threads, max(1, math.floor(free) - 1))
    note = f"{cause}: measuring again with {units.counted(threads, 'thread')}"
    return plan.with_threads(threads), outlook.with_threads(threads), note


def _before_again_s(plan: Plan, outlook: TuningForecast, elapsed_s: float) -> float:
    """Return the seconds of measurements to count, so that enough time is left to measure again."""
    if plan.max_time_s is None:
        return elapsed_s
    return min(elapsed_s, plan.max_time_s * (_OURS - _AGAIN_SHARE) - outlook.spent.total_s)


def _refuse_unusable(measured: ResultSet, outlook: TuningForecast) -> None:
    cause = verdicts.why_unusable(measured)
    if cause is not None:
        raise _without_verdict(cause, outlook)


def _without_verdict(cause: str, outlook: TuningForecast) -> InconclusiveError:
    """Return the error that names the cause, and what the forecast alone says."""
    best = max(outlook.prospects, key=lambda prospect: prospect.overall.speedup.value, default=None)
    drafting = None if best is None else best.arm.drafting
    if best is None or drafting is None:
        return InconclusiveError(f"there is no verdict: {cause}", _QUIETER)
    factor = units.format_factor(best.overall.speedup.value)
    forecast = f"the forecast alone, which nothing confirms, is {factor} at γ = {drafting.n_max}"
    return InconclusiveError(f"there is no verdict: {cause}; {forecast}", _QUIETER)


def measure_bench(
    session: Session, command: tuple[str, ...], *, name: str | None = None, resume: str | None = None
) -> ResultSet:
    """Measure a bench to its end, for callers that show no progress; see ``api.begin`` for the arguments."""
    store = api.begin(session, command=command, name=name, resume=resume)
    with session.engine:
        *_, results = api.record(session, store)
    return results


def keep(tuned: Tuned) -> None:
    """Store the configuration, and the forecasts of the chosen drafter, which a report draws.

    Raises:
        ResultsError: it cannot be written.
    """
    chosen = tuned.overall.arm.spec
    p_mins = {0.0, chosen.drafting.p_min if chosen.drafting else 0.0}
    forecasts = [
        prospect.overall
        for prospect in tuned.outlook.prospects
        if prospect.overall.method.drafts_with_model
        and prospect.overall.p_min in p_mins
        and (prospect.arm.draft_source == chosen.draft_source or chosen.drafting is None)
    ]
    profiles.keep(forecasts, tuned.results.folder)
    write_configuration(recommending.configuration_of(tuned), tuned.results.folder)


def _asked(options: dict[str, Any]) -> TuneRequest:
    """Tell a tuning's own options from those of its benches; both have the command line's names."""
    methods = options.pop("method", None)
    tuning_options = {field: options.pop(name) for name, field in _TUNING_OPTIONS.items() if name in options}
    if isinstance(kind := tuning_options.get("quantize_drafter"), str):
        tuning_options["quantize_drafter"] = (kind,)
    return TuneRequest(
        request=default(**options),
        methods=(methods,) if isinstance(methods, str) else methods,
        **tuning_options,
    )
