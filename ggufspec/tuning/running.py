"""The straight line of a tuning: request -> plan -> outlook -> finalists measured -> verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ggufspec import machine, units
from ggufspec.domain import Prompt, Role, RunSpec
from ggufspec.errors import GgufspecError, InconclusiveError, NoInstallError
from ggufspec.forecast import profiles
from ggufspec.measure import (
    RUN_SHARE,
    Block,
    Deadline,
    Session,
    api,
    fetch_in_time,
    traffic,
    unread_files,
)
from ggufspec.options import TuneOptions, takes
from ggufspec.results import ResultSet, write_configuration
from ggufspec.steps import SILENT, Sink, finish
from ggufspec.tuning import budgeting, launching, looking, prospects, untraced, values, verdicts
from ggufspec.tuning.budgeting import Budget
from ggufspec.tuning.planning import identify, prepare_tuning
from ggufspec.tuning.values import NextBench, Plan, Selection, Tuned, TuningForecast

_LAST_ROUNDS = 0.5  # of the time beyond what is planned, for the selection; the rest confirms
_QUIETER = "stop other programs, or allow more time with --max-time, and tune again"


def finals(plan: Plan, outlook: TuningForecast) -> Session:
    """Return the bench that selects: the target alone and the finalists, on the prompts that were traced.

    Finalists are left out, and then prompts, where the forecast took more time than was planned for it.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
    """
    outlook, stages = _fitting(plan, outlook)
    traced = {prompt.id for prompt in outlook.prompts}
    n_others = len(_other_prompts(plan, outlook, traced))
    if not any(map(_is_conversation, outlook.prompts)):
        outlook = replace(outlook, prompts=budgeting.selecting_prompts(outlook.prompts, n_others))
    worth = prospects.finalists(outlook.prospects, outlook.finalists)
    chosen = {*(prospect.arm for prospect in worth), *outlook.unknown}
    deadline = plan.deadline
    if stages is not None:
        measuring_s = deadline.reserve(_ending_s(plan, outlook)).left_s
        selecting_s, planned_s = stages[0], sum(stages)
        spare_s = measuring_s - planned_s
        share_s = selecting_s + spare_s * _LAST_ROUNDS
        if spare_s <= 0:
            share_s = measuring_s * selecting_s / planned_s
        deadline = deadline.stage(max(0.0, share_s))
    return _bench(plan, outlook, chosen, repeats=budgeting.SELECTING_REPEATS, deadline=deadline)


def _fitting(plan: Plan, outlook: TuningForecast) -> tuple[TuningForecast, tuple[float, float] | None]:
    """Return what there is still time for, and the seconds of both benches; None without a limit."""
    pace = outlook.pace
    if plan.deadline.limit_s is None or pace is None:
        return outlook, None
    ranked = prospects.finalists(outlook.prospects, outlook.finalists)
    speedups = [prospect.overall.speedup.value for prospect in ranked]
    speedups += [1.0] * len(outlook.unknown)
    left_s = plan.deadline.reserve(_ending_s(plan, outlook)).left_s
    arms = [plan.alone, *(prospect.arm for prospect in ranked), *outlook.unknown]
    reloading = sum(plan.session.engine.load_key(arm) is None for arm in arms)
    pace = replace(pace, run_s=max(pace.run_s, pace.load_s * reloading / len(arms)))
    n_unknown, most = len(outlook.unknown), len(outlook.prompts)
    tries = [
        *((finalists, most) for finalists in range(len(ranked), min(2, len(ranked)) - 1, -1)),
        *((min(2, len(ranked)), prompts) for prompts in range(most - 1, min(2, most) - 1, -1)),
    ]
    for finalists, prompts in tries:
        fewer = budgeting.spread(outlook.prompts, prompts)
        turns = sum(prompt.n_turns for prompt in fewer)
        budget = Budget(prompts=turns, n_predict=outlook.n_predict, finalists=finalists + n_unknown)
        kept = [*speedups[:finalists], *speedups[len(ranked) :]]
        stages = budgeting.plan_stages(budget, pace, plan.users, kept)
        if sum(stages) <= left_s:
            break
    return replace(outlook, finalists=max(1, finalists), prompts=fewer), stages


def _ending_s(plan: Plan, outlook: TuningForecast) -> float:
    """Return the seconds to keep for what follows the last run."""
    if outlook.pace is None:
        return 0.0
    return budgeting.ending_s(outlook.pace, plan.deadline.limit_s, launches=plan.launches)


def select_further(
    plan: Plan, outlook: TuningForecast, selection: Selection, *, repeats: int, measuring_s: float
) -> NextBench | None:
    """Return the bench that continues a selection; its stored runs are not repeated.

    None where nothing more is to be measured before the confirmation, or where that needs the time.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        selection: from the finalists' runs so far.
        repeats: of the finalists that may win.
        measuring_s: seconds since the first run.
    """
    selected = selection.results
    deadline = plan.deadline.reserve(_ending_s(plan, outlook) + _confirming_s(plan, outlook, selected))
    runs = selected.current
    loads = len(runs) / max(1, len({spec.prompt.id for spec in runs.specs}))  # each has a run of each prompt
    for further in _further(plan, outlook, selection, repeats):
        if deadline.fits(measuring_s * further.loads / max(1.0, loads)):
            on_same_prompts = _measured_prompts(outlook, selected)
            session = _bench(plan, on_same_prompts, further.arms, repeats=further.repeats, deadline=deadline)
            return NextBench(session=session, resume=selected.meta.id, note=further.note)
    return None


class _Further(NamedTuple):
    """Configurations to measure in a selection that goes on: so many repeats of each, of new loads in all."""

    arms: Set[RunSpec]
    repeats: int
    loads: int
    note: str | None = None


def _further(plan: Plan, outlook: TuningForecast, selection: Selection, repeats: int) -> Iterator[_Further]:
    """Yield what is worth measuring before a finalist is chosen, the most useful first.

    Where the best is at the edge, that is larger draft sizes. Where no library can trace, it is the
    neighbours of the best that were not forecast. Then finalists race that are too close to choose one.
    """
    if repeats == budgeting.SELECTING_REPEATS and (new := _beyond_best(plan, outlook, selection)):
        measured = _planned_arms(plan, selection.results.current.specs)
        yield _Further({*measured, *new}, repeats, repeats * len(new))
    if selection.racing and repeats < budgeting.MOST_SELECTING_REPEATS:
        close = units.counted(len(selection.racing), "candidate")
        note = f"{close} are too close to choose one by {repeats} repeats: measuring them once more"
        loads = len(selection.racing) + 1  # that of the target alone
        yield _Further(_planned_arms(plan, selection.racing), repeats + 1, loads, note)


def _beyond_best(plan: Plan, outlook: TuningForecast, selection: Selection) -> list[RunSpec]:
    """Return the configurations next to the fastest one that were neither measured nor forecast."""
    if selection.fastest is None:
        return []
    arms = (*prospects.drafting_arms(plan.blocks), *plan.beyond)
    further: list[RunSpec] = []
    if selection.edge is not None:
        further = prospects.next_larger(selection.fastest, arms)
    if not further and plan.why_untraced is not None:
        fastest = next(iter(_planned_arms(plan, [selection.fastest])))
        measured = _planned_arms(plan, selection.results.current.specs)
        neighbours = prospects.unmeasured_neighbours(fastest, arms, measured)
        further = [arm for arm in neighbours if outlook.prospect(arm) is None]
    return further


def _planned_arms(plan: Plan, specs: Iterable[RunSpec]) -> set[RunSpec]:
    """Return the configurations of a plan that some specifications are of."""
    arms = (*prospects.drafting_arms(plan.blocks), *plan.beyond)
    distinct = dict.fromkeys(specs)
    return {arm for arm in arms if any(values.is_same(arm, spec) for spec in distinct)}


def _measured_prompts(outlook: TuningForecast, selected: ResultSet) -> TuningForecast:
    """Return the forecast with the prompts of the selection, which may be fewer."""
    ids = {spec.prompt.id for spec in selected.current.specs}
    prompts = tuple(prompt for prompt in outlook.prompts if prompt.id in ids)
    return replace(outlook, prompts=prompts or outlook.prompts)


def _other_prompts(plan: Plan, outlook: TuningForecast, ids: Set[str]) -> tuple[Prompt, ...]:
    """Return the prompts that are none of these; none of conversations, whose turns depend on each other."""
    prompts = {prompt.id: prompt for prompt in (*outlook.prompts, *plan.session.suite.prompts)}
    if any(map(_is_conversation, prompts.values())):
        return ()
    return tuple(prompt for prompt in prompts.values() if prompt.id not in ids)


def _is_conversation(prompt: Prompt) -> bool:
    """Whether a prompt has later turns, or is one."""
    return "#" in prompt.id or bool(prompt.followups)


def _confirming_prompts(plan: Plan, outlook: TuningForecast, selected: ResultSet) -> TuningForecast:
    """Return the forecast with the prompts of the confirmation."""
    measured = _measured_prompts(outlook, selected).prompts
    others = _other_prompts(plan, outlook, {prompt.id for prompt in measured})
    return replace(outlook, prompts=budgeting.confirming_prompts(measured, others))


def _confirming_s(plan: Plan, outlook: TuningForecast, selected: ResultSet) -> float:
    """Return the seconds that a confirmation needs."""
    if outlook.pace is None:
        return 0.0
    budget = Budget(
        prompts=sum(prompt.n_turns for prompt in _confirming_prompts(plan, outlook, selected).prompts),
        n_predict=outlook.n_predict,
        finalists=2,
    )
    return budgeting.plan_stages(budget, outlook.pace, plan.users)[1]


def confirmation(plan: Plan, outlook: TuningForecast, selection: Selection) -> Session:
    """Return the bench that confirms: the target alone, the winner, the runner-up and those of categories.

    Its runs are new, and its models are loaded again, so that luck in the selection does not affect them. It
    has as many repeats as there is time for, until the speed-ups are as precise as requested.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        selection: what to confirm.
    """
    selected = [selection.winner, selection.runner_up, *selection.by_category.values()]
    return _bench(
        plan,
        _confirming_prompts(plan, outlook, selection.results),
        _planned_arms(plan, (spec for spec in selected if spec is not None)),
        repeats=budgeting.CONFIRMING_REPEATS,
        deadline=plan.deadline.reserve(_ending_s(plan, outlook)),
        precision=plan.precision,
        seed=plan.session.suite.seed + 1,
    )


def _bench(
    plan: Plan,
    outlook: TuningForecast,
    chosen: Set[RunSpec],
    *,
    repeats: int,
    deadline: Deadline,
    precision: float | None = None,
    seed: int | None = None,
) -> Session:
    """Return a bench of the target alone and some configurations, on the prompts that were traced."""
    blocks = []
    for block in plan.blocks:
        alone, *others = (*block.arms, *(arm for arm in plan.beyond if arm.baseline == block.arms[0]))
        arms = (alone, *(arm for arm in others if arm in chosen))
        blocks.append(Block(arms=arms).replace(n_predict=outlook.n_predict))
    requests = plan.plan_traffic(outlook.prompts)
    if requests is not None:
        blocks = [block.replace(traffic=requests, context=plan.serving.context) for block in blocks]
    first, *more = blocks  # the target alone is measured where it is fastest, whatever else is
    planned = plan.session.suite
    suite = replace(
        planned,
        blocks=(first, *(block for block in more if len(block.arms) > 1)),
        prompts=outlook.prompts,
        warmup_prompts=planned.warmup_prompts[:1],
        repeats=repeats,
        loads=planned.loads and repeats,
        warmups=1,
        seed=planned.seed if seed is None else seed,
        precision=precision,
    )
    if requests is not None:
        suite = traffic.send_together(suite)
    return replace(plan.session, suite=suite, deadline=deadline)


@takes(TuneOptions)
def tune(asked: TuneOptions, sink: Sink = SILENT) -> Tuned:
    """Find the fastest way to run a target, as ``ggufspec tune`` does.

    Returns:
        The verdict, the finalists and the command that serves the choice; all is stored.

    Raises:
        InconclusiveError: nothing that was measured can be used.
        GgufspecError: something cannot work; failing runs of finalists are rows instead.
    """
    plan = _begin(asked, sink)
    outlook = _look(plan, sink)

    def place(bench: NextBench) -> tuple[str | None, str | None]:
        is_named = bench.confirms and bench.note is None
        return (asked.name if is_named else None), bench.resume

    return measure_and_keep(plan, outlook, sink, place=place, command=sink.command("tune", asked))


@takes(TuneOptions)
def forecast_tuning(asked: TuneOptions, sink: Sink = SILENT) -> TuningForecast:
    """Forecast every configuration, as ``ggufspec tune --forecast`` does; only short runs correct the costs.

    Raises:
        InconclusiveError: other programs left a thread no core of its own.
        NoInstallError: no library can trace, and no rounds forecast anything.
        GgufspecError: something cannot work.
    """
    return _look(_begin(asked, sink, forecast_only=True), sink)


def _begin(asked: TuneOptions, sink: Sink, *, forecast_only: bool = False) -> Plan:
    """Download models, check what was asked for, know all files by their content, and look at the machine."""
    deadline = Deadline.start(asked.max_time, begun_s=sink.begun_s, run_share=RUN_SHARE)
    fetched, deadline = fetch_in_time(asked, deadline, sink)
    prepare = partial(prepare_tuning, fetched, forecast_only=forecast_only)
    plan = prepare(deadline)
    if plan.simulated is not None and not forecast_only:
        raise GgufspecError("a machine that is simulated cannot be measured", "add --forecast")
    sink.show(plan.deadline)
    if looking.has_uncounted_experts(plan):
        sink.finish(looking.count_experts(plan))
        plan = prepare(plan.deadline)  # at the places that are fastest with these experts
    if forecast_only and plan.why_untraced is not None and not untraced.replayable(plan):
        raise NoInstallError(
            f"nothing can be forecast: {plan.why_untraced}",
            "leave out --forecast to measure candidates instead",
        )
    sink.show(plan.session)
    api.say_reading(unread_files(plan.session), sink)
    plan = identify(plan)
    api.check_machine(plan.session, sink)
    return plan


def _look(plan: Plan, sink: Sink) -> TuningForecast:
    outlook = sink.finish(looking.forecast_configurations(plan))
    sink.show(outlook)
    return outlook


def measure_and_keep(
    plan: Plan,
    outlook: TuningForecast,
    sink: Sink,
    *,
    place: Callable[[NextBench], tuple[str | None, str | None]],
    command: tuple[str, ...],
) -> Tuned:
    """Measure the finalists, start llama-server once with the choice, and store the configuration.

    Args:
        plan: what may be chosen.
        outlook: what was forecast.
        sink: gets what is measured next, and the growing benches.
        place: returns the name of a new bench, and that of a stored one to go on with; each or None.
        command: stored with each bench.

    Raises:
        InconclusiveError: nothing that was measured can be used.
        GgufspecError: a bench cannot be stored.
    """

    def measure(bench: NextBench) -> ResultSet:
        if bench.note is not None:
            sink.say(bench.note)
        sink.say(f"{_describe_bench(bench)} · {plan.deadline.describe_left()}")
        name, resume = place(bench)
        return api.measure(bench.session, sink, command=command, name=name, resume=resume)

    tuned = finish(measure_finalists(plan, outlook), measure)
    if plan.launches:
        left = plan.deadline.describe_left()
        sink.say(f"starting llama-server by the command that will be printed · {left}")
    tuned = launching.serve(plan, tuned)
    keep(tuned)
    sink.show(tuned)
    return tuned


def _describe_bench(bench: NextBench) -> str:
    """Return what is measured next."""
    suite = bench.session.suite
    candidates = units.counted(suite.n_arms[Role.DRAFTING], "candidate")
    prompts = units.counted(sum(prompt.n_turns for prompt in suite.prompts), "prompt")
    if bench.confirms:
        return f"confirming: {candidates} and the target alone on {prompts}"
    further = " more" if bench.resume is not None else ""
    return f"selecting{further}: {candidates} and the target alone on {prompts}"


def measure_finalists(plan: Plan, outlook: TuningForecast) -> Generator[NextBench, ResultSet | None, Tuned]:
    """Yield each bench to measure, take its results, and return the verdict.

    Where no run of the target alone can be used, the bench is measured once more, if there is time, with at
    most one thread fewer than there are free cores.

    Raises:
        InconclusiveError: nor can any run of that bench be used.
    """
    begun = time.monotonic()

    def elapsed_s() -> float:
        return time.monotonic() - begun

    plan, outlook, selected = yield from _measure_usable(
        plan, outlook, lambda plan, outlook: NextBench(session=finals(plan, outlook))
    )
    selection, repeats = verdicts.select_arms(selected), budgeting.SELECTING_REPEATS
    while further := select_further(plan, outlook, selection, repeats=repeats, measuring_s=elapsed_s()):
        larger = yield further
        assert larger is not None
        suite = further.session.suite
        repeats = suite.repeats
        selection = verdicts.select_arms(larger, [arm for block in suite.blocks for arm in block.arms])
    plan, outlook, confirmed = yield from _measure_usable(
        plan,
        outlook,
        lambda plan, outlook: NextBench(session=confirmation(plan, outlook, selection), confirms=True),
    )
    return verdicts.judge_finalists(outlook, selection, confirmed, measuring_s=elapsed_s())


def _measure_usable(
    plan: Plan, outlook: TuningForecast, make_bench: Callable[[Plan, TuningForecast], NextBench]
) -> Generator[NextBench, ResultSet | None, tuple[Plan, TuningForecast, ResultSet]]:
    """Yield a bench, and once more with fewer threads where no run of the target alone can be used.

    Returns:
        Plan and forecast as they were measured, and the results.

    Raises:
        InconclusiveError: nor can any run of the second bench be used.
    """
    measured = yield make_bench(plan, outlook)
    assert measured is not None
    if (cause := verdicts.why_unusable(measured)) is None:
        return plan, outlook, measured
    _refuse_late(measured, plan, outlook, cause)
    free = machine.usable_cores() - machine.busy_cores()
    threads = min(plan.alone.threads, max(1, math.floor(free) - 1))
    plan, outlook = plan.with_threads(threads), outlook.with_threads(threads)
    note = f"{cause}: measuring again with {units.counted(threads, 'thread')}"
    measured = yield replace(make_bench(plan, outlook), note=note)
    assert measured is not None
    if (cause := verdicts.why_unusable(measured)) is not None:
        _refuse_late(measured, plan, outlook, cause)
        raise _without_verdict(cause, outlook)
    return plan, outlook, measured


def _refuse_late(measured: ResultSet, plan: Plan, outlook: TuningForecast, cause: str) -> None:
    """Make sure that there is time to measure again.

    Raises:
        InconclusiveError: the time limit is over, or ended the bench before a run of the target alone.
    """
    if plan.deadline.limit_s is None:
        return
    run_s = 0.0 if outlook.pace is None else outlook.pace.answer(outlook.n_predict)
    is_late = not plan.deadline.reserve(_ending_s(plan, outlook)).fits(run_s)
    if is_late or not any(spec.role is Role.TARGET for spec in measured.current.specs):
        raise _without_verdict(f"{cause} ({plan.deadline.describe()})", outlook)


def _without_verdict(cause: str, outlook: TuningForecast) -> InconclusiveError:
    """Return the error that names the cause, and what the forecast alone says."""
    best = max(outlook.prospects, key=lambda prospect: prospect.overall.speedup.value, default=None)
    drafting = None if best is None else best.arm.drafting
    if best is None or drafting is None:
        return InconclusiveError(f"there is no verdict: {cause}", _QUIETER)
    factor = units.format_factor(best.overall.speedup.value)
    forecast = f"the forecast alone, which nothing confirms, is {factor} at γ = {drafting.n_max}"
    return InconclusiveError(f"there is no verdict: {cause}; {forecast}", _QUIETER)


def keep(tuned: Tuned) -> None:
    """Store the configuration, and the forecasts of the chosen drafter, which a report draws.

    Raises:
        ResultsError: it cannot be written.
    """
    chosen = tuned.overall.spec
    p_mins = {0.0, chosen.drafting.p_min if chosen.drafting else 0.0}
    forecasts = [
        prospect.overall
        for prospect in tuned.outlook.prospects
        if prospect.overall.drafting.method.drafts_with_model
        and prospect.overall.drafting.p_min in p_mins
        and (prospect.arm.draft_source == chosen.draft_source or chosen.drafting is None)
    ]
    profiles.keep(forecasts, tuned.results.folder)
    write_configuration(verdicts.configuration_of(tuned), tuned.results.folder)
