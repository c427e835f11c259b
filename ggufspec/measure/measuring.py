"""Suite x Engine -> RunResults: resumes an interrupted bench, and stops once results are precise enough."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ggufspec import results
from ggufspec.analysis import arms, review
from ggufspec.domain import FileIdentity, Prompt
from ggufspec.engines import Engine
from ggufspec.llama.install import Install
from ggufspec.measure import audit
from ggufspec.measure.identity import FileWatch
from ggufspec.measure.recorder import Recorder
from ggufspec.measure.sweep import Block, Cell, RunPlan
from ggufspec.prompts import PromptTurns, Render
from ggufspec.results import ResultSet

_LEAST_FOR_SPREAD = 2  # repeats; one has no spread
_MOST_REPEATS = 1000


def record(
    suite: RunPlan,
    engine: Engine,
    install: Install,
    store: ResultSet,
    *,
    render: Render | None = None,
    files: Sequence[FileIdentity] = (),
    builds: Mapping[str, Install] | None = None,
) -> Iterator[ResultSet]:
    """Measure a suite and store every run as it ends; yield the growing ResultSet, the given one first.

    Args:
        suite: the blocks, prompts and repeats to measure.
        engine: measures one run.
        install: the llama.cpp behind the engine, or the first of several.
        store: a new bench or a reopened one, whose finished cells are not measured again.
        render: makes the text of the later turns of conversations; see ``PromptTurns``.
        files: the model files; the bench ends where one of them changes meanwhile.
        builds: the llama.cpps behind the engine, by ``RunSpec.build``, where there are several.

    Raises:
        DiskFullError: results cannot be stored; earlier results stay.
        ResultsError: another program removed or changed the stored results, or a model file changed.
    """
    session = _Session(
        recorder=Recorder(
            engine=engine,
            install=install,
            results=store,
            builds=builds or {},
            file_watch=FileWatch(files=files),
        ),
        deadline=None if suite.max_time_s is None else time.monotonic() + suite.max_time_s,
    )
    yield store
    try:
        yield from _measure(suite, session, render)
        engine.close()  # judging loads a target itself
        judges: list[tuple[str | None, Install]] = [*builds.items()] if builds else [(None, install)]
        for build, judge in judges:
            runs = [run for run in session.recorder.results.runs if run.spec.build == build]
            for judged in audit.judge_texts(runs, judge):
                session.recorder.results = results.judge(session.recorder.results, judged)
        results.confirm(session.recorder.results)
        if not session.is_over:  # there may have been more repeats or fewer turns than planned
            done = len(session.recorder.results.current)
            session.recorder.results = results.amend(session.recorder.results, planned_runs=done)
        yield session.recorder.results
    finally:
        results.close(session.recorder.results)


def _measure(suite: RunPlan, session: _Session, render: Render | None) -> Iterator[ResultSet]:
    engine = session.recorder.engine
    prompts = yield from _turns(suite, session, render)
    suite = replace(suite, prompts=prompts)
    for block in suite.blocks:
        yield from session.run(suite.warm(block))
        for repeat in count():
            if session.is_over or _enough(suite, block, repeat, session.recorder.results):
                break
            yield from session.run(
                suite.once(block, repeat, load_key=engine.load_key, capacity=engine.capacity)
            )


@dataclass(kw_only=True)
class _Session:
    """Runs cells that are not finished yet, until the time limit."""

    recorder: Recorder
    deadline: float | None

    @property
    def is_over(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def run(self, cells: Iterable[Cell]) -> Iterator[ResultSet]:
        """Measure each cell once; two blocks may share one, because a drafter alone needs no target."""
        for cell in cells:
            key = results.cell(cell.spec, cell.repeat, warmup=cell.warmup, anchor=cell.anchor)
            if key in self._finished:
                continue
            if self.is_over:
                return
            for _ in self.recorder.measure(cell):
                yield self.recorder.results
            self._finished.add(key)

    def __post_init__(self) -> None:
        self._finished = set(results.finished(self.recorder.results))


def _enough(suite: RunPlan, block: Block, repeat: int, so_far: ResultSet) -> bool:
    """Whether a block needs no more repeats: it is precise enough, or more repeats would not make it so."""
    if repeat < max(suite.repeats, 1 if suite.precision is None else _LEAST_FOR_SPREAD):
        return False
    if suite.precision is None or repeat >= _MOST_REPEATS:
        return True
    return not review.improvable(arms.group(so_far), block.arms, suite.precision)


def _turns(
    suite: RunPlan, session: _Session, render: Render | None
) -> Generator[ResultSet, None, tuple[Prompt, ...]]:
    """Return each turn of the suite's conversations as a prompt; the target's answers stand between turns."""
    target_alone = suite.blocks[0].arms[0]
    prompts: list[Prompt] = []
    for prompt in suite.prompts:
        turns = PromptTurns(prompt, render)
        while not turns.is_complete:
            spec = replace(target_alone, prompt=turns.made[-1])
            yield from session.run([Cell(spec=spec, repeat=0, warmup=True)])
            answer = session.recorder.answer(spec)
            if answer is None:
                break  # the failed run is stored; the conversation ends here
            turns.add_answer(answer)
        prompts += turns.made
    return tuple(prompts)
