"""How many users, how long a context, until drafting stops paying: measure few cells, forecast, measure more.

First, the server is computed for all cells, from a trace of the prompts and the costs of batches, as far as
that can be done. The cells at the ends of both axes are measured first, up to their first look. All others
are forecast: as computed, corrected by how far that is off at the measured cells. Then, as long as there is
time, cells are measured whose verdict is in doubt: forecast ones before measured ones, which are repeated up
to their next look (``analysis.LOOKS``).
Everything is one stored bench, which can be continued.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ggufspec import engines
from ggufspec.analysis import LOOKS, CellSource, CrossoverCell, CrossoverMap, map_crossover
from ggufspec.domain import Failure, ModelFile, Program, Prompt, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import ExpectedRound, TracedTexts
from ggufspec.llama.command import LEARNING_METHODS
from ggufspec.measure import (
    NO_DEADLINE,
    RUN_SHARE,
    Block,
    Deadline,
    Session,
    api,
    fetch_in_time,
    prepare_session,
)
from ggufspec.options import BenchOptions, CrossoverOptions, takes
from ggufspec.results import CrossoverAxes, ResultSet, load, write_crossover_axes
from ggufspec.serving import plan_traffic
from ggufspec.steps import SILENT, Sink, finish
from ggufspec.tuning import budgeting, calibrating, looking, prospects, untraced
from ggufspec.tuning.budgeting import CellPace, Pace
from ggufspec.tuning.planning import choose_threads
from ggufspec.tuning.prospects import Traces
from ggufspec.tuning.values import NextBench, Stage
from ggufspec.units import counted

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

_MANY = 4  # numbers of users, beyond which one in the middle is measured first, too
_REPEATS = LOOKS[0]  # of each cell that is measured
_AT_ONCE = 4  # cells, before the map is made again
_LOAD_S = 2.0  # of a run beside its requests
_ENDING_S = 1.0  # to make the map and print it
_TRACES_SHARE = 0.05  # of the time
_COSTS_SHARE = 0.1
_FEWEST_PROMPTS = 2
_SEVERAL = 2  # users, or more


@dataclass(frozen=True, kw_only=True)
class CrossoverPlan:
    """A checked session of all cells, the axes of the map, and the time limit.

    ``rounds`` are what a computed server takes in each cell; nothing where it was not computed. ``repeats``
    is how often each cell is measured, before verdicts that are in doubt get more.
    """

    session: Session
    axes: CrossoverAxes
    deadline: Deadline = NO_DEADLINE
    rounds: tuple[ExpectedRound, ...] = ()
    repeats: int = _REPEATS

    @property
    def blocks(self) -> dict[TrafficPoint, Block]:
        """The arms of each cell."""
        traffics = [(block.arms[0].traffic, block) for block in self.session.suite.blocks]
        return {TrafficPoint(sent.users, sent.depth): block for sent, block in traffics if sent is not None}

    @property
    def shallowest(self) -> Block:
        """The arms of the first of the shallowest cells."""
        return next(block for point, block in self.blocks.items() if point.depth == self.axes.depths[0])


def prepare_crossover(asked: CrossoverOptions, deadline: Deadline | None = None) -> CrossoverPlan:
    """Check what was asked for; memory and context are planned for the largest cell.

    Args:
        asked: what to map, and for how long.
        deadline: the time limit, if it has begun before.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    if deadline is None:
        deadline = Deadline.start(asked.max_time, run_share=RUN_SHARE)
    threads, about_threads = choose_threads(asked.threads)
    users, depths = tuple(sorted({*(asked.parallel or (1,))})), tuple(sorted({*asked.depths}))
    request = asked.to(
        BenchOptions, threads=threads, parallel=users, depth=depths, repeats=_REPEATS, max_time=None
    )
    session = prepare_session(request)
    axes = CrossoverAxes(users=users, depths=depths)
    plan = CrossoverPlan(session=session, axes=axes, deadline=deadline)
    _check_arms(plan)
    first = coarse_points(axes)
    notes = tuple(note for note in session.notes if not note.startswith(("traffic:", "loads:")))
    about = (
        f"crossover: {counted(len(users), 'number')} of users at {counted(len(depths), 'depth')}; "
        f"{len(first)} of {counted(len(users) * len(depths), 'cell')} are measured first"
    )
    return replace(plan, session=replace(session, notes=(*notes, *about_threads, about)))


def expect_cells(plan: CrossoverPlan, *, resume: str | None = None) -> Generator[Stage, None, CrossoverPlan]:
    """Yield a Stage for each step; return the plan with what fits into the time and is expected of all cells.

    Nothing is computed where all cells are measured first, or where a crossover that is continued has it.

    Args:
        plan: what to map.
        resume: the stored crossover that is continued.

    Raises:
        TimeLimitError: not even the first cells fit into the time limit.
    """
    kept = None if resume is None else load(resume)
    if kept is not None and len(kept.runs):  # texts of other lengths cannot be compared
        plan = _with_length(plan, max(spec.n_predict for spec in kept.runs.specs))
    pace: CellPace | None = None
    if plan.deadline.limit_s is not None and untraced.why_untraced(plan.session) is None:
        pace = yield from _time_cells(plan)
        plan = _fitting(plan, pace, resumed=kept is not None)
    cells = set(plan.blocks)
    if cells <= {*coarse_points(plan.axes)}:
        return plan
    stored = () if kept is None else profiles.kept_rounds(kept.folder)
    if cells <= {TrafficPoint(traffic.users, traffic.depth) for traffic in stored}:
        return replace(plan, rounds=stored)
    rounds, note = yield from _expect_rounds(plan, pace)
    session = replace(plan.session, notes=(*plan.session.notes, note))
    return replace(plan, session=session, rounds=rounds)


def _fitting(plan: CrossoverPlan, pace: CellPace, *, resumed: bool) -> CrossoverPlan:
    """Return the plan with as long texts as there is time for, and notes on what fits.

    Raises:
        TimeLimitError: not even the first cells fit.
    """
    if resumed:
        return plan
    cells = [plan.blocks[point] for point in coarse_points(plan.axes)]
    wanted = cells[0].arms[0].n_predict
    n_predict, repeats = budgeting.plan_cells(plan.deadline, pace, cells, plan.repeats)
    limit, texts = plan.deadline.describe(), counted(n_predict, "token")
    notes = [f"{limit}: {counted(len(cells), 'cell')} first, {counted(repeats, 'repeat')} of {texts} each"]
    if repeats < LOOKS[0]:
        notes.append(f"{limit} is too short for verdicts, which need {counted(LOOKS[0], 'repeat')} of a cell")
    if n_predict < wanted:
        notes.append(f"-n {wanted} is shortened to {n_predict}, so that the runs fit into {limit}")
    session = replace(plan.session, notes=(*plan.session.notes, *notes))
    return _with_length(replace(plan, session=session, repeats=repeats), n_predict)


def _with_length(plan: CrossoverPlan, n_predict: int) -> CrossoverPlan:
    """Return the plan with texts of so many tokens."""
    suite = plan.session.suite
    blocks = tuple(block.replace(n_predict=n_predict) for block in suite.blocks)
    return replace(plan, session=replace(plan.session, suite=replace(suite, blocks=blocks)))


def _time_cells(plan: CrossoverPlan) -> Generator[Stage, None, CellPace]:
    """Yield a Stage; return how long requests take here, by a load, some tokens and the first prompt.

    Raises:
        TimeLimitError: that alone takes more than a quarter of the time limit.
    """
    first, drafters = _first_run(plan)
    users = plan.axes.users[-1]
    with looking.open_library(plan.session.install, drafters, first.pair.target) as engine:
        yield Stage(name="loading", done=0, total=1)
        try:
            start = looking.measure_start(
                engine, first, drafters, plan.deadline, program=Program.SERVER, users=users
            )
        except Failure as failure:
            raise looking.explain_failure(failure, plan.deadline) from failure
    tokens = start.beginning.target_trace.n_prompt
    return CellPace(users=users, pace=start.pace, prompt_tokens=tokens)


def _first_run(plan: CrossoverPlan) -> tuple[RunSpec, list[ModelFile]]:
    """Return the target's run on the first prompt of the shallowest cell, and what drafts."""
    alone, *others = plan.shallowest.arms
    assert alone.traffic is not None
    drafters = [*dict.fromkeys(arm.draft_source for arm in others if arm.draft_source is not None)]
    return replace(alone, traffic=None, prompt=alone.traffic.prompts[0]), drafters


def _expect_rounds(
    plan: CrossoverPlan, pace: CellPace | None
) -> Generator[Stage, None, tuple[tuple[ExpectedRound, ...], str]]:
    """Yield a Stage for each step; return what a computed server takes for a round in each cell, and a note.

    There is nothing where the library cannot be used, or where a method cannot be computed.

    Args:
        plan: whose arms differ in the draft size alone.
        pace: how long requests take here; None without a time limit.
    """
    install = plan.session.install
    arms = [replace(arm, traffic=None) for arm in plan.shallowest.arms if arm.drafting is not None]
    why_not = _why_not_computed(plan.session, arms)
    if why_not is not None:
        return (), _interpolated(why_not)
    first, drafters = _first_run(plan)
    requests = plan.shallowest.arms[0].traffic
    assert requests is not None
    limit_s = math.inf if plan.deadline.limit_s is None else plan.deadline.limit_s
    times = Pace(token_s=0.0, load_s=0.0) if pace is None else pace.pace
    with looking.open_library(install, drafters, first.pair.target) as engine:
        try:
            chosen = requests.prompts
            if pace is not None:
                affordable = int(limit_s * _TRACES_SHARE / times.answer(first.n_predict))
                chosen = budgeting.spread(requests.prompts, max(_FEWEST_PROMPTS, affordable))
            tracing = plan.deadline.stage(limit_s * _TRACES_SHARE)
            traces = Traces(
                texts=(yield from _trace_prompts(engine, first, arms, chosen, drafters, tracing)),
                drafters=drafters,
                engine="server",
                n_predict=first.n_predict,
                build=install.build_number,
            )
            curves, _ = yield from calibrating.curves(
                engine,
                install,
                first,
                arms,
                traces,
                users=plan.axes.users[-1],
                pace=times,
                deadline=plan.deadline.stage(limit_s * _COSTS_SHARE),
                depth=plan.axes.depths[-1] - plan.axes.depths[0],
            )
        except Failure as failure:
            return (), _interpolated(failure.reason)
    (curve,) = curves.values()
    return tuple(_compute_rounds(plan, arms, traces, curve)), (
        "forecasts: the server is computed for every cell, from a trace of the prompts and timed costs, and "
        "corrected by the measured cells"
    )


def _why_not_computed(session: Session, arms: Sequence[RunSpec]) -> str | None:
    """Return why nothing can be computed; None where it can."""
    if (reason := untraced.why_untraced(session)) is not None:
        return reason
    heads = engines.check_library(session.install).heads
    build = session.install.build_number
    for arm in arms:
        is_learning = not LEARNING_METHODS.isdisjoint(arm.drafts_by.chain.methods)
        if is_learning or not prospects.can_forecast(arm, Program.SERVER, build, heads=heads, users=_SEVERAL):
            return f"drafting by {arm.drafts_by.chain} cannot be computed"
    return None


def _interpolated(reason: str) -> str:
    return f"forecasts: interpolated between measured cells, because {reason}"


def _trace_prompts(
    engine: InprocessEngine,
    first: RunSpec,
    arms: Sequence[RunSpec],
    prompts: Sequence[Prompt],
    drafters: Sequence[ModelFile],
    deadline: Deadline,
) -> Generator[Stage, None, list[TracedTexts]]:
    limits = prospects.draft_limits(arms, first.n_predict)
    spec = replace(first, n_predict=trace.needed(first.n_predict, max(limits.sizes), Program.SERVER))
    texts: list[TracedTexts] = []
    for number, prompt in enumerate(prompts):
        if texts and deadline.is_over():
            break
        yield Stage(name=f"tracing · {prompt.id}", done=number, total=len(prompts))
        engine.timeout_s = deadline.timeout_s()
        texts += profiles.traces(engine, spec, (prompt,), drafters, limits=limits, program=Program.SERVER)
    return texts


def _compute_rounds(
    plan: CrossoverPlan, arms: Sequence[RunSpec], traces: Traces, curve: CostCurve
) -> Iterator[ExpectedRound]:
    """Yield the rounds of the target alone and of each draft size in each cell."""
    for users, depth in plan.blocks:
        sent = plan_traffic(traces.prompts, users, seed=plan.session.suite.seed)
        further = depth - plan.axes.depths[0]
        forecasts = prospects.serve_users(arms, traces, curve, sent, depth=further)
        for index, forecast in enumerate(forecasts):
            if index == 0:
                alone_s = users / forecast.served_alone.tokens_per_s
                yield ExpectedRound(users=users, depth=depth, seconds=alone_s)
            seconds = users * forecast.forecast.mean_accepted_length / forecast.tokens_per_s
            yield ExpectedRound(users=users, depth=depth, draft=forecast.run.drafting.n_max, seconds=seconds)


def coarse_points(axes: CrossoverAxes) -> tuple[TrafficPoint, ...]:
    """Return the cells to measure first: the ends of both axes, and of many numbers of users a middle one.

    The middle is that of a geometric series, because batches matter by their ratio.
    """
    first, last = axes.users[0], axes.users[-1]
    users = {first, last}
    if len(axes.users) > _MANY:
        users.add(min(axes.users, key=lambda number: abs(math.log(number**2 / (first * last)))))
    depths = {axes.depths[0], axes.depths[-1]}
    return tuple(TrafficPoint(number, depth) for number in sorted(users) for depth in sorted(depths))


def begin_crossover(
    plan: CrossoverPlan,
    step: NextBench,
    *,
    command: tuple[str, ...],
    name: str | None = None,
    resume: str | None = None,
) -> ResultSet:
    """Open the bench of a step, and store the axes of the map in it; see ``measure.api.begin``.

    ``name`` and ``resume`` are for the first step; the others go on with its bench.

    Raises:
        ResultsError: it cannot be opened or written.
    """
    if step.resume is not None:
        name, resume = None, step.resume
    opened = api.begin(step.session, command=command, name=name, resume=resume)
    write_crossover_axes(plan.axes, opened.folder)
    if plan.rounds:
        profiles.keep_rounds(plan.rounds, opened.folder)
    return opened


def measure_crossover(plan: CrossoverPlan) -> Generator[NextBench, ResultSet | None, CrossoverMap]:
    """Yield each step, take the results of the bench so far, and return the map."""
    deadline = plan.deadline.reserve(_ENDING_S)
    first = coarse_points(plan.axes)
    results = yield _step(plan, first, 1)
    assert results is not None
    tried = {(point, 1) for point in first}
    chosen, repeats = first, plan.repeats
    while chosen and not deadline.is_over():
        tried |= {(point, repeats) for point in chosen}
        results = yield replace(_step(plan, chosen, repeats), resume=results.meta.id)
        assert results is not None
        chosen, repeats = choose_points(plan, results, deadline.left_s, tried)
    return map_crossover(results, plan.axes)


def choose_points(
    plan: CrossoverPlan, results: ResultSet, left_s: float, tried: set[tuple[TrafficPoint, int]]
) -> tuple[tuple[TrafficPoint, ...], int]:
    """Return the cells to measure next and up to how many repeats.

    There are none where all is decided or time is short.

    Cells in doubt come in the order of their doubt, forecast ones first. The time of a run is at most that of
    the cells that were measured with as many users and as deep a context.

    Args:
        plan: what is mapped.
        results: the bench so far.
        left_s: seconds; infinite without a limit.
        tried: cells and repeats that were measured, or could not be.
    """
    doubtful = sorted(map_crossover(results, plan.axes).undecided, key=_certainty)
    wanted = {cell.place: plan.repeats for cell in doubtful if cell.source is not CellSource.MEASURED}
    if not any((point, repeats) not in tried for point, repeats in wanted.items()):
        later = {cell.place: [look for look in LOOKS if look > cell.repeats] for cell in doubtful}
        wanted = {point: looks[0] for point, looks in later.items() if looks}
    wanted = {point: repeats for point, repeats in wanted.items() if (point, repeats) not in tried}
    if not wanted:
        return (), 0
    repeats = min(wanted.values())
    run_s, blocks, spent_s = _run_seconds(results), plan.blocks, 0.0
    chosen: list[TrafficPoint] = []
    for point in (point for point, number in wanted.items() if number == repeats):
        known = [
            seconds for at, seconds in run_s.items() if at.users >= point.users and at.depth >= point.depth
        ]
        new_repeats = repeats - max((number for at, number in tried if at == point), default=0)
        needed_s = len(blocks[point].arms) * new_repeats * (min(known, default=0.0) + _LOAD_S)
        if spent_s + needed_s <= left_s:
            spent_s += needed_s
            chosen.append(point)
    return tuple(chosen[:_AT_ONCE]), repeats


def _certainty(cell: CrossoverCell) -> float:
    """Return how far a cell's speed-up is from 1, by the width of its interval."""
    best = cell.best
    half = None if best is None else best.speedup.relative_half_width
    return 0.0 if best is None or not half else abs(math.log(best.speedup.value)) / half


def _run_seconds(results: ResultSet) -> dict[TrafficPoint, float]:
    """Return the longest run of each cell in seconds."""
    longest: dict[TrafficPoint, float] = {}
    runs = results.current
    for spec, wall_s in zip(runs.specs, runs.column("wall_s"), strict=True):
        if spec.traffic is not None:
            point = TrafficPoint(spec.traffic.users, spec.traffic.depth)
            longest[point] = max(wall_s, longest.get(point, 0.0))
    return longest


def _step(plan: CrossoverPlan, points: Sequence[TrafficPoint], repeats: int) -> NextBench:
    blocks = plan.blocks
    suite = replace(
        plan.session.suite,
        blocks=tuple(blocks[point] for point in points),
        repeats=repeats,
        loads=plan.session.suite.loads and repeats,
    )
    deadline = plan.deadline.reserve(_ENDING_S)
    cells = ", ".join(f"{counted(users, 'user')} at depth {depth:,}" for users, depth in points)
    return NextBench(
        session=replace(plan.session, suite=suite, deadline=deadline),
        note=f"measuring {cells}: {counted(repeats, 'repeat')}",
    )


def _check_arms(plan: CrossoverPlan) -> None:
    """Make sure that the arms of a cell differ in the draft size alone.

    Raises:
        GgufspecError: they differ in something else, or nothing drafts.
    """
    blocks = plan.session.suite.blocks
    drafts = [arm.drafting.n_max for arm in blocks[0].arms if arm.drafting is not None]
    if not drafts:
        raise GgufspecError(
            "nothing drafts, so there is nothing to compare",
            "name a drafter with --draft-model, or a method without one, such as --method ngram-simple",
        )
    if len(blocks) != len(plan.axes.users) * len(plan.axes.depths) or len({*drafts}) < len(drafts):
        raise GgufspecError(
            "a crossover compares draft sizes, and nothing else",
            "name one drafter, one method and one value of each other setting; `ggufspec sweep` takes more",
        )


@takes(CrossoverOptions)
def crossover(asked: CrossoverOptions, sink: Sink = SILENT) -> CrossoverMap:
    """Map where drafting pays over users and depth, as ``ggufspec crossover`` does.

    Returns:
        The map; ``ggufspec.load(map.bench)`` returns the runs.

    Raises:
        GgufspecError: something cannot work; failing runs are rows instead.
    """
    deadline = Deadline.start(asked.max_time, begun_s=sink.begun_s, run_share=RUN_SHARE)
    fetched, deadline = fetch_in_time(asked, deadline, sink)
    plan = prepare_crossover(fetched, deadline)
    sink.show(plan.deadline)
    sink.show(plan.session)
    session = api.identify_here(plan.session, sink)
    known = len(session.notes)
    plan = sink.finish(expect_cells(replace(plan, session=session), resume=asked.resume))
    for note in plan.session.notes[known:]:
        sink.say(note)
    command = sink.command("crossover", asked)

    def measure(step: NextBench) -> ResultSet:
        sink.say(f"{step.note} · {plan.deadline.describe_left()}")
        opened = begin_crossover(plan, step, command=command, name=asked.name, resume=asked.resume)
        return api.run(step.session, opened, sink)

    return finish(measure_crossover(plan), measure)
