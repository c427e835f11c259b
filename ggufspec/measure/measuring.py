"""Suite x Engine -> RunResults: goes on where a bench was cut off, and knows when to stop."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
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
from ggufspec.measure.sweep import Block, Cell, Suite
from ggufspec.prompts import Message, Render
from ggufspec.results import ResultSet

_LEAST_FOR_SPREAD = 2  # repeats; one says nothing of how far they spread
_MOST_REPEATS = 1000


def record(
    suite: Suite,
    engine: Engine,
    install: Install,
    store: ResultSet,
    *,
    render: Render | None = None,
    files: Sequence[FileIdentity] = (),
) -> Iterator[ResultSet]:
    """Measure a suite and store every run as it ends; yield the growing ResultSet, the given one first.

    Args:
        suite: what to measure.
        engine: how to measure one run.
        install: the llama.cpp behind the engine.
        store: a new bench or a reopened one, whose finished cells are not measured again.
        render: makes the later turns' texts of conversations; without it turns are put together as they are.
        files: what is measured; the bench ends where one of them is changed meanwhile.

    Raises:
        DiskFullError: results cannot be stored; what was stored before stays.
        ResultsError: somebody else removed or changed what was stored, or a file that is measured.
    """
    session = _Session(
        recorder=Recorder(engine=engine, install=install, results=store, file_watch=FileWatch(files=files)),
        deadline=None if suite.max_time_s is None else time.monotonic() + suite.max_time_s,
    )
    yield store
    try:
        yield from _measure(suite, session, render)
        engine.close()  # the judge loads a target of its own
        for judged in audit.judge(session.recorder.results.runs, install):
            session.recorder.results = results.judge(session.recorder.results, judged)
        results.confirm(session.recorder.results)
        if (
            not session.is_over
        ):  # more repeats than planned may have been needed, or fewer turns been possible
            done = len(session.recorder.results.current)
            session.recorder.results = results.amend(session.recorder.results, planned_runs=done)
        yield session.recorder.results
    finally:
        results.close(session.recorder.results)


def _measure(suite: Suite, session: _Session, render: Render | None) -> Iterator[ResultSet]:
    engine = session.recorder.engine
    prompts = yield from _turns(suite, session, render)
    whole = replace(suite, prompts=prompts)
    for block in whole.blocks:
        yield from session.run(whole.warm(block))
        for repeat in count():
            if session.is_over or _enough(whole, block, repeat, session.recorder.results):
                break
            yield from session.run(
                whole.once(block, repeat, load_key=engine.load_key, capacity=engine.capacity)
            )


@dataclass(kw_only=True)
class _Session:
    """Runs cells that are not yet finished, until the time is over."""

    recorder: Recorder
    deadline: float | None

    @property
    def is_over(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def run(self, cells: Iterable[Cell]) -> Iterator[ResultSet]:
        """Measure each cell once, also one that two blocks share: a drafter alone needs no target."""
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


def _enough(suite: Suite, block: Block, repeat: int, so_far: ResultSet) -> bool:
    """Whether a block needs no further repeat: precise enough, or more repeats would not make it so."""
    if repeat < max(suite.repeats, 1 if suite.precision is None else _LEAST_FOR_SPREAD):
        return False
    if suite.precision is None or repeat >= _MOST_REPEATS:
        return True
    return not review.improvable(arms.group(so_far), block.arms, suite.precision)


def _turns(
    suite: Suite, session: _Session, render: Render | None
) -> Generator[ResultSet, None, tuple[Prompt, ...]]:
    """Make each turn of a conversation a prompt of its own; the target's own answers stand between them."""
    alone = suite.blocks[0].arms[0]
    prompts: list[Prompt] = []
    for prompt in suite.prompts:
        turn = replace(prompt, followups=())
        messages: list[Message] = []
        prompts.append(turn)
        for number, followup in enumerate(prompt.followups, start=2):
            spec = replace(alone, prompt=turn)
            yield from session.run([Cell(spec=spec, repeat=0, warmup=True)])
            answer = session.recorder.answer(spec)
            if answer is None:
                break  # the failed run is on record; the conversation ends here
            messages += [Message("user", turn.message or turn.text), Message("assistant", answer)]
            text = (
                f"{turn.text}{answer}\n\n{followup}\n\n"
                if render is None
                else render([*messages, Message("user", followup)])
            )
            turn = Prompt(id=f"{prompt.id}#{number}", text=text, category=prompt.category, message=followup)
            prompts.append(turn)
    return tuple(prompts)
