"""Suite x Engine -> RunResults: resumes an interrupted bench, and stops once results are precise enough."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from ggufspec import results
from ggufspec.analysis import arms, rates, review
from ggufspec.domain import NO_PROMPT, Prompt, Role, RunSpec
from ggufspec.measure import audit, scoring
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.recorder import Recorder
from ggufspec.measure.runplan import Cell, RunPlan
from ggufspec.measure.session import Session
from ggufspec.measure.sweep import Block
from ggufspec.prompts import PromptTurns, Render
from ggufspec.results import ResultSet, Runs
from ggufspec.serving import RunningEngine, count_requests

FIRST_LOOK = 8
"""Repeats, with a precision: after fewer, those end that look precise by luck, and 90 % hold."""

_MOST_REPEATS = 1000
_JUDGE_S = 2.0  # until the worker runs that scores texts, on a slow machine, beside its load
_JUDGING_SHARE = 0.3  # of the time in which a text was written: batches read it several times as fast
_MOST_JUDGING = 0.1  # of the time limit


def record(session: Session, store: ResultSet, *, announces: bool = False) -> Iterator[ResultSet]:
    """Measure a session and store every run as it ends; yield the growing ResultSet, the given one first.

    A run that would not end in time is not begun. Without a deadline, the time begins now.

    Args:
        session: what to measure, after ``identify``. The bench ends where one of its files changes meanwhile.
        store: a new bench or a reopened one, whose finished cells are not measured again.
        announces: also yield before each run, with the run as ``upcoming``: the time to show progress, as
            nothing is measured then.

    Raises:
        DiskFullError: results cannot be stored; earlier results stay.
        ResultsError: another program removed or changed the stored results, or a model file changed.
    """
    engine, deadline = session.engine, session.deadline or Deadline.start(session.suite.max_time_s)
    recorder = Recorder(session=session, results=store, deadline=deadline)
    runner = _CellRunner(recorder=recorder, announces=announces)
    yield store
    try:
        yield from _measure(session, runner)
        engine.close()  # judging loads a target itself
        judges: dict[str | None, audit.Judge]
        judges = {build: audit.InstallJudge(install) for build, install in session.builds.items()}
        if isinstance(engine, RunningEngine):
            judges = {None: engine}
        elif session.llama is not None and not judges:
            judges = {None: audit.InstallJudge(session.llama)}
        for build, judge in judges.items():
            runs = _of_build(recorder.results.runs, build)
            for judged in audit.judge_texts(runs, judge, deadline=deadline):
                recorder.results = results.judge(recorder.results, judged)
            current = _of_build(recorder.results.current, build)
            for scored in scoring.score_texts(current, judge, deadline=deadline):
                recorder.results = results.judge(recorder.results, scored)
        results.confirm(recorder.results)
        if not runner.is_over:  # there may have been more repeats or fewer turns than planned
            done = len(recorder.results.current)
            recorder.results = results.amend(recorder.results, planned_runs=done)
        yield recorder.results
    finally:
        results.close(recorder.results)


def _measure(session: Session, runner: _CellRunner) -> Iterator[ResultSet]:
    engine, suite = session.engine, session.suite
    suite = replace(suite, prompts=(yield from _turns(suite, runner, session.render)))
    suite = replace(suite, blocks=(yield from _served_turns(suite, runner)))
    for block in suite.blocks:
        for repeats in suite.repeats_by_load():
            if runner.is_over or _enough(suite, block, repeats.start, runner.recorder.results):
                break
            engine.close()  # every arm is loaded anew
            cells = suite.cells(block, repeats, load_key=engine.load_key, capacity=engine.capacity)
            yield from runner.run(cells)
            if repeats.stop >= min(suite.repeats, rates.LEAST_REPEATS):
                yield from _remeasure(suite, runner, block, repeats.stop)


def _remeasure(suite: RunPlan, runner: _CellRunner, block: Block, n_repeats: int) -> Iterator[ResultSet]:
    """Measure all arms again on each prompt and repeat of which a run collapsed.

    This is done once: what collapses again is kept. Every arm is measured, as a rule that replaced only the
    runs that collapsed would favour their arms.
    """
    engine = runner.recorder.session.engine
    affected = runner.find_collapses(block, suite.prompts, n_repeats)
    for repeats in takewhile(lambda repeats: repeats.start < n_repeats, suite.repeats_by_load()):
        if not any(repeat in repeats for _, repeat in affected):
            continue
        cells = suite.cells(block, repeats, load_key=engine.load_key, capacity=engine.capacity)
        engine.close()
        yield from runner.run(
            replace(cell, remeasured=True)
            for cell in cells
            if not cell.anchor
            and (
                engine.load_key(cell.spec) is not None
                if cell.warmup
                else (cell.spec.prompt.id, cell.repeat) in affected
            )
        )


@dataclass(kw_only=True)
class _CellRunner:
    """Runs cells that are not finished yet, until one would not end within the time limit."""

    recorder: Recorder
    announces: bool = False
    is_over: bool = False
    _newest: dict[results.CellKey, int] = field(init=False)  # the place of the newest run of each cell
    _seconds: dict[RunSpec, float] = field(default_factory=dict)  # by arm: the longest run of this session
    _prompts: set[str] = field(default_factory=set)  # of this session

    def __post_init__(self) -> None:
        self._newest = {key: place for place, key in enumerate(self.recorder.results.runs.cells())}

    def run(self, cells: Iterable[Cell]) -> Iterator[ResultSet]:
        """Measure each cell once.

        Two blocks may share a cell, because a drafter alone needs no target. A load that has something left
        to measure has its warm-ups, also those that were stored before the bench was cut off.
        """
        engine = self.recorder.session.engine
        cells = list(cells)
        loads = {
            engine.load_key(cell.spec) for cell in cells if not cell.warmup and not self._is_finished(cell)
        } - {None}
        waiting = {_arm(cell) for cell in cells if not cell.warmup and not self._is_finished(cell)}
        for cell in cells:
            is_cold = cell.warmup and engine.load_key(cell.spec) in loads
            if self._is_finished(cell) and not is_cold:
                continue
            if self.is_over or not self._fits(cell):
                self.is_over = True
                return
            if self.announces:
                yield replace(self.recorder.results, upcoming=cell.spec)
            is_stored = False
            arm = _arm(cell)
            if not cell.warmup:
                waiting.discard(arm)
            for run in self.recorder.measure(cell):
                is_stored = True
                self._prompts.add(run.spec.prompt.id)
                self._seconds[arm] = max(run.wall_s, self._seconds.get(arm, 0.0))
                yield self.recorder.results
                if not self._fits(cell, waiting=len(waiting)):
                    break
            if not is_stored:
                self.is_over = True
                return
            self._newest[_key(cell)] = len(self.recorder.results.runs) - 1

    def _fits(self, cell: Cell, *, waiting: int = 0) -> bool:
        """Whether a run ends in time, if it takes as long as the longest of its arm, or else of any arm.

        Args:
            cell: the run.
            waiting: arms that have no run yet; measuring a cell again leaves time for one of each.
        """
        if self.recorder.deadline.is_over():
            return False
        longest_s = max(self._seconds.values(), default=0.0)
        run_s = self._seconds.get(_arm(cell), longest_s)
        return self.recorder.deadline.fits(run_s + waiting * longest_s + self._judging_s(longest_s))

    def _judging_s(self, run_s: float) -> float:
        """Return the seconds to keep for judging the texts, of runs that take ``run_s`` at most."""
        if self.recorder.deadline.limit_s is None:
            return 0.0
        expected_s = _JUDGE_S + _JUDGING_SHARE * run_s * len(self._prompts)
        return min(expected_s, self.recorder.deadline.limit_s * _MOST_JUDGING)

    def find_collapses(
        self, block: Block, prompts: Sequence[Prompt], n_repeats: int
    ) -> frozenset[tuple[str, int]]:
        """Return prompts and repeats that must be measured again, because a run of a block's arms collapsed.

        These include what a bench that was cut off had begun to measure again. A drafter alone is no sign of
        that, as another block may have measured it.
        """
        specs = [spec for prompt in prompts for spec in block.on(prompt)]
        keys = (results.cell(spec, repeat) for spec in specs for repeat in range(n_repeats))
        stored = self.recorder.results.runs
        runs = stored.select([self._newest[key] for key in keys if key in self._newest])
        collapsed = [run for run in map(runs.__getitem__, rates.find_collapses(runs)) if not run.remeasured]
        remeasured = runs.select([place for place, again in enumerate(runs.column("remeasured")) if again])
        begun = [run for run in remeasured if run.spec.role is not Role.DRAFTER]
        return frozenset((run.spec.prompt.id, run.repeat) for run in (*collapsed, *begun))

    def find_answers(self, spec: RunSpec) -> dict[int, str]:
        """Return what was answered in a warm-up with traffic, by the place of its prompt."""
        place = self._newest.get(_key(Cell(spec=spec, repeat=0, warmup=True)))
        sample = None if place is None else self.recorder.results.runs[place].sample.traffic
        return {} if sample is None else {answer.prompt: answer.text for answer in sample.answers}

    def _is_finished(self, cell: Cell) -> bool:
        place = self._newest.get(_key(cell))
        return place is not None and (not cell.remeasured or self.recorder.results.runs[place].remeasured)


def _arm(cell: Cell) -> RunSpec:
    return replace(cell.spec, prompt=NO_PROMPT)


def _key(cell: Cell) -> results.CellKey:
    return results.cell(cell.spec, cell.repeat, warmup=cell.warmup, anchor=cell.anchor)


def _enough(suite: RunPlan, block: Block, repeat: int, so_far: ResultSet) -> bool:
    """Whether a block needs no more repeats: it is decided or precise enough, or more would not help."""
    if suite.stopping is not None:
        if repeat >= suite.stopping.most_repeats:
            return True
        is_look = repeat in suite.stopping.looks
        return is_look and review.is_decided(arms.group(so_far), block.arms)
    if repeat < max(suite.repeats, 1 if suite.precision is None else FIRST_LOOK):
        return False
    if suite.precision is None or repeat >= _MOST_REPEATS:
        return True
    return not review.improvable(arms.group(so_far), block.arms, suite.precision)


def _turns(
    suite: RunPlan, runner: _CellRunner, render: Render | None
) -> Generator[ResultSet, None, tuple[Prompt, ...]]:
    """Return each turn of the suite's conversations as a prompt; the target's answers stand between turns.

    Recorded answers need no run.
    """
    target_alone = suite.blocks[0].arms[0]
    prompts: list[Prompt] = []
    for prompt in suite.prompts:
        turns = PromptTurns(prompt, render, warm=suite.warm_turns)
        turns.add_recorded()
        while not turns.is_complete:
            spec = replace(target_alone, prompt=turns.made[-1])
            yield from runner.run([Cell(spec=spec, repeat=0, warmup=True)])
            answer = runner.recorder.answer(spec)
            if answer is None:
                break  # the failed run is stored; the conversation ends here
            turns.add_answer(answer)
            turns.add_recorded()
        prompts += turns.made
    return tuple(prompts)


def _served_turns(suite: RunPlan, runner: _CellRunner) -> Generator[ResultSet, None, Sequence[Block]]:
    """Return the blocks with each turn of a single user's conversations as a prompt of its own.

    The first arm's answers stand between turns.
    """
    first = suite.blocks[0].arms[0].traffic
    if first is None or not any(prompt.followups for prompt in first.prompts):
        return suite.blocks
    blocks: list[Block] = []
    for block in suite.blocks:
        sent = block.arms[0].traffic
        assert sent is not None
        talks = [PromptTurns(prompt, None, warm=suite.warm_turns) for prompt in sent.prompts]
        for talk in talks:
            talk.add_recorded()
        waiting = [talk for talk in talks if not talk.is_complete]
        while waiting:
            turns = tuple(talk.made[-1] for talk in waiting)
            # the first request of a user precedes the steady window
            asked = replace(sent, prompts=turns, n_requests=max(2, len(turns)))
            spec = replace(block.arms[0], prompt=suite.prompts[0], traffic=asked)
            yield from runner.run([Cell(spec=spec, repeat=0, warmup=True)])
            answers = runner.find_answers(spec)
            for place, answer in answers.items():
                waiting[place].add_answer(answer)
                waiting[place].add_recorded()
            # a conversation without an answer ends here, and the failed request is stored
            waiting = [waiting[place] for place in answers if not waiting[place].is_complete]
        prompts = tuple(turn for talk in talks for turn in talk.made)
        requests = replace(sent, prompts=prompts, n_requests=count_requests(len(prompts), sent.users))
        blocks.append(block.replace(traffic=requests))
    return tuple(blocks)


def _of_build(runs: Runs, build: str | None) -> Runs:
    return runs.select([place for place, spec in enumerate(runs.specs) if spec.build == build])
