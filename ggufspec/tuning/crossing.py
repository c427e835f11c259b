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
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from ggufspec.analysis import LOOKS, CellSource, CrossoverCell, CrossoverMap, map_crossover
from ggufspec.errors import GgufspecError
from ggufspec.forecast import profiles
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.forecast.profiles import ExpectedRound
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
from ggufspec.steps import SILENT, Sink, finish
from ggufspec.tuning import budgeting, expecting, untraced
from ggufspec.tuning.budgeting import CellPace
from ggufspec.tuning.planning import choose_threads
from ggufspec.tuning.values import NextBench, Stage
from ggufspec.units import counted

_MANY = 4  # numbers of users, beyond which one in the middle is measured first, too
_REPEATS = LOOKS[0]  # of each cell that is measured
_AT_ONCE = 4  # cells, before the map is made again
_LOAD_S = 2.0  # of a run beside its requests
_ENDING_S = 1.0  # to make the map and print it


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
        pace = yield from expecting.time_cells(plan.session, plan.blocks, plan.deadline)
        plan = _fitting(plan, pace, resumed=kept is not None)
    cells = set(plan.blocks)
    if cells <= {*coarse_points(plan.axes)}:
        return plan
    stored = () if kept is None else profiles.kept_rounds(kept.folder)
    if cells <= {TrafficPoint(traffic.users, traffic.depth) for traffic in stored}:
        return replace(plan, rounds=stored)
    expected = yield from expecting.expect_rounds(plan.session, plan.blocks, plan.deadline, pace)
    session = replace(plan.session, notes=(*plan.session.notes, expected.note))
    return replace(plan, session=session, rounds=expected.rounds)


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
