"""The straight line of a tuning: request -> plan -> outlook -> finalists measured -> verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ggufspec import machine, units
from ggufspec.domain import Chain, Method, Program, Role, RunSpec, Serving
from ggufspec.engines import ENGINES, check_library
from ggufspec.engines.server import LEARNING_METHODS
from ggufspec.errors import GgufspecError, InconclusiveError
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import BATCH, most_rows
from ggufspec.forecast.trace import draft_sizes
from ggufspec.llama.command import check_chain
from ggufspec.llama.install import Install, installs
from ggufspec.llama.rpc import workers
from ggufspec.measure import (
    Block,
    Request,
    RunPlan,
    Session,
    api,
    check_finite,
    describe_engine,
    fetch_models,
    find_methods,
    identity,
    refuse_endless,
    traffic,
)
from ggufspec.measure import identify as identified
from ggufspec.measure import prepare_session as checked
from ggufspec.modelfiles import gguf, memory
from ggufspec.notebooks import check_options
from ggufspec.results import ResultSet, write_configuration
from ggufspec.tuning import (
    candidates,
    looking,
    prospects,
    quantizing,
    recommending,
    serving,
    values,
    verdicts,
)
from ggufspec.tuning.values import Plan, Prospect, Selection, Tuned, TuningForecast

_ENGINE, _LIBRARY_ENGINE = "server", "inprocess"  # the latter where llama.cpp is a library without programs
_SIZES = tuple(range(1, 17))  # of drafts by a model
_LOOKUP_SIZES = (8, 12, 16, 32, 48)  # of drafts from the text so far
_P_MINS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9)
_TUNING_OPTIONS = {
    "max_time": "max_time_s",
    "precision": "precision",
    "vram": "vram_bytes",
    "fresh": "fresh",
    "serve_ctx": "serve_ctx",
    "serve_parallel": "serve_parallel",
    "quantize_drafter": "quantize_drafter",
}
_BEYOND = (20, 24, 32, 48)  # further sizes of drafts by a model, tried where the largest one is the best
_REPEATS = 2  # of the selection
_CONFIRMING_REPEATS = 3  # at least, each with loads of its own
_SELECTION_SHARE = 0.5  # of the time that is left after the forecast; the rest confirms
_AGAIN_SHARE = 0.5  # of the complete time: at least so much is left to measure again where runs are unusable
_SLACK = 2.5  # of what one repeat should take by the forecast: loads, warm-ups, a busy machine
_LOAD_S = 5.0
_QUIETER = "stop other programs, or allow more time with --max-time, and tune again"
_OURS = 0.97  # of the time; the rest goes to what stands before and after: checks, the last run, the judge


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What to choose from, and for how long.

    Attributes:
        request: models, prompts and settings as for a bench; its tuples are what may be chosen. The
            engine is the one that the choice will be used with: by default the server, or ``inprocess`` for
            a llama.cpp without programs. Without ``draft``, all sizes up to 16 are.
        methods: what may draft, as for a bench; None for whatever the engine's program can.
        serve_ctx: tokens of context that the choice must serve in each slot; None for the largest default
            that fits, see ``serving.choose_serving``.
        serve_parallel: slots, requests that are served at once; ``request.parallel``, if that is given. With
            ``request.parallel``, the choice is for that many users: it is forecast and measured so.
        quantize_drafter: quantizations to make of each drafter, as further drafters to choose from.
        vram_bytes: plan with this much GPU memory instead of what is free.
        max_time_s: for everything together; None for as long as it takes.
        precision: half of the speed-ups' intervals over the speed-ups.
        fresh: measure costs again, even if they are stored.
    """

    request: Request = field(default_factory=lambda: default())
    methods: tuple[str, ...] | None = None
    serve_ctx: int | None = None
    serve_parallel: int = 1
    quantize_drafter: tuple[str, ...] = ()
    vram_bytes: int | None = None
    max_time_s: float | None = 300.0
    precision: float | None = 0.02
    fresh: bool = False

    def __post_init__(self) -> None:
        """Refuse what the command line refuses, too.

        Raises:
            GgufspecError: a number is NaN or infinite.
        """
        check_finite(self)


def prepare_tuning(asked: TuneRequest) -> Plan:
    """Check what was asked for, and lay out what may be chosen.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    if asked.request.synthetic_accept is not None:
        raise GgufspecError(
            "a tuning asks what the drafters are worth, and synthetic acceptance would decide that",
            "leave it out, or measure with `ggufspec sweep --synthetic-accept`",
        )
    users = _users(asked)
    llama, *others = asked.request.llamas
    if others:
        raise GgufspecError("a tuning uses one llama.cpp", "name one, and compare two with `ggufspec bench`")
    install = installs.find_install(llama, with_rpc=any(asked.request.rpcs))
    engine = asked.request.engine or (_ENGINE if install.programs else _LIBRARY_ENGINE)
    with_quantized, about_drafters = quantizing.add_quantized(asked.request, asked.quantize_drafter, install)
    methods = asked.methods or _methods(install, with_quantized, engine)
    usable = methods if users is None else tuple(filter(_serves_users, methods))
    sizes = sorted({*_SIZES, *_LOOKUP_SIZES, *_BEYOND})
    request = replace(
        with_quantized,
        engine=engine,
        p_min=0.0 if ENGINES[engine] is Program.TREE else asked.request.p_min,  # it knows none
        method=usable,
        draft=asked.request.draft or tuple(size for size in sizes if _fits_batch(asked.request, users, size)),
        precision=asked.precision,
        max_time=None,
        ctx=_slot_context(asked),
    )
    if not usable:
        raise _nothing_drafts()
    if _keeps_drafter_on_processor(request, install):
        request = replace(request, ngld=0)
    session = checked(request)
    refuse_endless(session.suite)
    check_library(session.install)  # looking ahead needs it, whatever the engine
    settings = {
        (arm.model, arm.kv_type, arm.ubatch, arm.threads, arm.runtime, arm.offload.rpc)
        for arm in _plain(session)
    }
    if len(settings) > 1:
        raise GgufspecError(
            "only one target under one setting can be tuned at once",
            "name one target, and one --threads, --kv-type, --ubatch-size and --rpc; `ggufspec sweep` takes "
            "several",
        )
    models = {
        model
        for block in session.suite.blocks
        for arm in block.arms
        for model in (arm.model, arm.drafter)
        if model is not None and model.path is not None
    }
    cards = {model: gguf.validate_file(model.path) for model in models if model.path is not None}
    lending = workers.with_devices(session.install, session.workers)
    vram, layout = _vram_bytes(asked, lending), memory.layout_for(session.install.build_number)
    to_serve, why = serving.choose_serving(
        request.ctx,
        users or asked.serve_parallel,
        [
            replace(arm, traffic=None)
            for block in session.suite.blocks
            for arm in block.arms
            if arm.role is not Role.DRAFTER
        ],
        cards,
        layout=layout,
        vram_bytes=vram,
    )
    context = to_serve.total_context if users is None else to_serve.context
    if context != session.suite.blocks[0].arms[0].context:
        session = checked(replace(request, ctx=context))
    blocks = candidates.blocks(session.suite.blocks, cards, layout=layout, vram_bytes=vram)
    if users is not None:
        session, blocks = _one_at_a_time(session, blocks, to_serve)
    beyond: tuple[RunSpec, ...] = ()
    if not asked.request.draft:
        beyond = tuple(arm for arm in prospects.drafting_arms(blocks) if _is_beyond(arm))
        blocks = tuple(Block(arms=tuple(arm for arm in block.arms if _is_usual(arm))) for block in blocks)
    if not prospects.drafting_arms(blocks):
        raise _nothing_drafts()
    notes = tuple(note for note in session.notes if asked.request.draft or not note.startswith("draft sizes"))
    chosen = () if asked.request.engine else describe_engine(engine, install)
    about_users = _describe_users(users, [name for name in methods if name not in usable])
    return Plan(
        session=replace(
            session,
            notes=(*chosen, *notes, *about_drafters, _serving_note(to_serve, why), *about_users),
        ),
        serving=to_serve,
        blocks=blocks,
        vram_bytes=vram,
        max_time_s=asked.max_time_s,
        precision=asked.precision,
        fresh=asked.fresh,
        beyond=beyond,
        users=users,
    )


def _nothing_drafts() -> GgufspecError:
    return GgufspecError(
        "there is nothing to choose from: no drafter, and no method that drafts without one",
        "name a drafter with --draft-model, or find one with `ggufspec suggest`",
    )


def _users(asked: TuneRequest) -> int | None:
    """Return how many users send requests at once; None for one request after another.

    Raises:
        GgufspecError: there are several numbers of users, other traffic, or another number of slots.
    """
    request = asked.request
    for name in ("depth", "rate", "replay", "url", "url_drafting"):
        if getattr(request, name) is not None:
            raise GgufspecError(
                f"a tuning does not measure --{name.replace('_', '-')}",
                "leave it out; `ggufspec bench` and `ggufspec crossover` measure other traffic",
            )
    if len(request.users) > 1:
        raise GgufspecError(
            "a tuning is for one number of users",
            "give one with --parallel; `ggufspec crossover` compares several",
        )
    users = request.users[0] if request.users else None
    if users is not None and asked.serve_parallel not in {1, users}:
        raise GgufspecError(
            f"--parallel {users} and --serve-parallel {asked.serve_parallel} differ",
            "a tuning for several users measures the slots that are to be served: leave --serve-parallel out",
        )
    return users


def _serves_users(method: str) -> bool:
    """Whether several users can measure a method: their prompts are sent more than once."""
    try:
        return LEARNING_METHODS.isdisjoint(Chain.parse(method).methods)
    except ValueError:  # an unknown method, which is refused by its name later
        return True


def _fits_batch(request: Request, users: int | None, size: int) -> bool:
    """Whether the drafts of all users fit into a batch."""
    runtimes = request.runtime if isinstance(request.runtime, tuple) else (request.runtime,)
    batch = min(runtime.batch or BATCH for runtime in runtimes)
    return users is None or most_rows(users, size) <= batch


def _one_at_a_time(
    session: Session, blocks: tuple[Block, ...], to_serve: Serving
) -> tuple[Session, tuple[Block, ...]]:
    """Return a session with the prompts of several users, and its configurations with one request at a time.

    Costs are timed with these, with as much context as all slots have together.
    """
    requests = blocks[0].arms[0].traffic
    assert requests is not None
    alone = [
        Block(arms=tuple(replace(arm, traffic=None, context=to_serve.total_context) for arm in block.arms))
        for block in blocks
    ]
    suite = replace(session.suite, blocks=tuple(alone), prompts=requests.prompts)
    notes = tuple(note for note in session.notes if not note.startswith("traffic:"))
    return replace(session, suite=suite, notes=notes), tuple(alone)


def _describe_users(users: int | None, left_out: Sequence[str]) -> Iterator[str]:
    """Yield notes about several users."""
    if users is not None:
        yield f"users: the choice is for {units.counted(users, 'user')} at once, and is measured with them"
    if left_out:
        yield (
            f"methods: {', '.join(left_out)} left out, because they learn from earlier requests, and users "
            "send every prompt more than once"
        )


def _slot_context(asked: TuneRequest) -> int | None:
    """Return the requested context of a slot; --ctx is that, too.

    Raises:
        GgufspecError: two were given.
    """
    if asked.serve_ctx is not None and asked.request.ctx not in {None, asked.serve_ctx}:
        raise GgufspecError(
            f"--ctx {asked.request.ctx} and --serve-ctx {asked.serve_ctx} differ",
            "a tuning measures at the context that is to be served: leave --ctx out",
        )
    return asked.serve_ctx or asked.request.ctx


def _serving_note(to_serve: Serving, why: str) -> str:
    slots = "one request at a time" if to_serve.slots == 1 else f"{to_serve.slots} requests at once"
    return f"serving: {slots}, each with a context of {to_serve.context:,} tokens, {why} (--serve-ctx)"


def identify(plan: Plan) -> Plan:
    """Return a plan whose models and llama.cpp are known by their content, see ``request.identify``.

    Raises:
        ModelFileError: a file cannot be read.
    """
    models = identity.of_models(identity.models((*plan.session.suite.blocks, *plan.blocks)))
    beyond = identity.with_contents((Block(arms=plan.beyond),), models)[0].arms if plan.beyond else ()
    return replace(
        plan,
        session=identified(plan.session),
        blocks=identity.with_contents(plan.blocks, models),
        beyond=beyond,
    )


def _methods(install: Install, request: Request, engine: str) -> tuple[str, ...]:
    """Return what the models draft by, and the n-gram methods of the engine at some of the given draft sizes.

    Raises:
        GgufspecError: the pair's own method cannot be measured here.
    """
    methods = dict.fromkeys((Method.DRAFT_MODEL.value, *find_methods(request)))
    program = ENGINES[engine]
    sizes = request.draft if isinstance(request.draft, tuple) else (request.draft,)
    for method in Method:
        if method.drafts_with_model or engine == "inprocess" or not draft_sizes(method, sizes):
            continue
        with suppress(GgufspecError):
            check_chain(install, program, Chain(method))
            methods[method.value] = None
    return tuple(methods)


def _is_usual(arm: RunSpec) -> bool:
    """Whether a configuration is tried if no draft sizes are given."""
    drafting = arm.drafting
    if drafting is None:
        return True
    return drafting.n_max in (_SIZES if drafting.method.drafts_with_model else _LOOKUP_SIZES)


def _is_beyond(arm: RunSpec) -> bool:
    """Whether a configuration is tried only where the largest of the usual draft sizes is the best."""
    drafting = arm.drafting
    return drafting is not None and drafting.method.drafts_with_model and drafting.n_max > max(_SIZES)


def _plain(session: Session) -> tuple[RunSpec, ...]:
    return tuple(block.arms[0] for block in session.suite.blocks)


def _keeps_drafter_on_processor(request: Request, install: Install) -> bool:
    """Whether workers have the target's layers, and this machine, where the drafter is, has no GPU."""
    is_open = request.ngld == "auto" and not request.offload.draft_devices
    return is_open and install.gpu is False and any(request.rpcs)


def _vram_bytes(asked: TuneRequest, install: Install) -> int | None:
    """Return the GPU memory to plan with, that of workers included; None where nothing can be offloaded.

    Raises:
        GgufspecError: GPU memory was named for a build that uses none.
    """
    if install.gpu is False:
        if asked.vram_bytes is not None:
            raise GgufspecError(
                f"the llama.cpp in {install.root} is built for the processor alone",
                "leave --vram out, or build one for the GPU: `ggufspec build --backend cuda`",
            )
        return None
    free_bytes = sum(gpu.free_bytes for gpu in machine.memory(install.gpus).gpus)
    return asked.vram_bytes or free_bytes or None


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


def default(**options: Any) -> Request:
    """Return a request with tuning's own default: several p_min."""
    return Request(**{"p_min": _P_MINS, **options})
