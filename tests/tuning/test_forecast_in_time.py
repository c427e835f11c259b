"""The forecast of a tuning within its time limit, however slow the models are."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pytest

from ggufspec import engines, machine, paths, units
from ggufspec.domain import Conditions, Failure, Prompt, Role, RunSpec, Serving, Status
from ggufspec.engines import Measurement
from ggufspec.engines.library import selftest
from ggufspec.engines.library.messages import Curve
from ggufspec.errors import InconclusiveError, TimeLimitError
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.measure import Deadline, prepare_session
from ggufspec.options import BenchOptions
from ggufspec.stats import Estimate
from ggufspec.steps import finish
from ggufspec.tuning import Plan, TuningForecast, looking, planning
from tests.support import fake_server, scripted, timed, tunings
from tests.support.scripted import Clock, Scripted

TOKEN_S, LOAD_S = 0.01, 1.0
LIMIT_S = 120.0


@dataclass(kw_only=True)
class Library:
    """llama.cpp's library on a machine that is so many times slower than its first timing says."""

    clock: Clock
    slowdown: float = 1.0
    stall_s: float = 0.0  # in each timing of costs, after the first timing
    drift: float = 0.0  # by which the machine is slower from one timing of costs to the next
    timeout_s: float | None = None
    is_timed: bool = False  # whether the first beginning of a text was timed
    longest_s: float = 0.0
    seen: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Nothing is started."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is ended."""

    def wait(self, what: str, seconds: float) -> None:
        """Let time pass; what takes longer than the engine's time limit is ended."""
        self.seen.append(what)
        seconds *= self.slowdown if self.is_timed else 1.0
        taken_s = seconds if self.timeout_s is None else min(seconds, self.timeout_s)
        self.clock.now += taken_s
        self.longest_s = max(self.longest_s, taken_s)
        if taken_s < seconds:
            raise Failure(Status.TIMED_OUT, f"killed after {taken_s:g} s")

    def load(self, spec: RunSpec, drafters: Sequence[object] = ()) -> float:
        """Load models."""
        self.wait("load", LOAD_S)
        return LOAD_S

    def curve(
        self,
        spec: RunSpec,
        drafters: Sequence[object],
        *,
        batches: Sequence[int],
        depths: Sequence[int],
        repeats: int,
    ) -> Curve:
        """Time rounds: of each size three, with as many drafted tokens."""
        rounds = sum(1 + 0.3 * (size - 1) * (1 + len(drafters)) for size in batches)
        stalled_s = self.stall_s if self.is_timed else 0.0
        self.wait("curve", repeats * len(depths) * (3 * rounds + 8) * TOKEN_S + stalled_s)
        taken = timed.timings(batches=batches, depths=depths)
        if not drafters:
            taken = tuple(timing for timing in taken if timing.drafter is None)
        token_s = TOKEN_S * (1 + self.drift * self.seen.count("curve"))
        return Curve(timings=tuple(timing._replace(seconds=token_s) for timing in taken))


def _traces(
    engine: Library, spec: RunSpec, prompts: Sequence[Prompt], drafters: Sequence[object], **_: Any
) -> Iterator[TracedTexts]:
    for prompt in prompts:
        engine.wait("trace", spec.n_predict * TOKEN_S)
        engine.is_timed = True
        yield tunings.traced(
            prompt, spec.n_predict, drafters=len(drafters), written_s=spec.n_predict * TOKEN_S
        )


@dataclass(kw_only=True)
class Server(Scripted):
    """The engine of the calibration, as slow as the library."""

    library: Library

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Load and run."""
        self.library.timeout_s = self.timeout_s
        status = Status.OK
        try:
            self.library.wait("run", LOAD_S + spec.n_predict * TOKEN_S)
        except Failure as failure:
            status = failure.status
        sample = replace(scripted.sample(spec, tps=100.0), status=status)
        return Measurement(sample=sample, argv=("x",), wall_s=1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


@pytest.fixture
def plan(llama: Path) -> Plan:
    fake_server.program(llama / "llama-server")
    session = prepare_session(BenchOptions(pair="demo", engine="server", n_predict=250))
    first, *_ = session.suite.blocks
    arms = [arm for arm in first.arms if arm.role is not Role.DRAFTER]
    block = replace(first, arms=tuple(arms))
    return Plan(
        session=session, serving=Serving(context=512), blocks=(block,), vram_bytes=None, precision=None
    )


def _look(
    plan: Plan,
    clock: Clock,
    slowdown: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    stall_s: float = 0.0,
    drift: float = 0.0,
    limit_s: float = LIMIT_S,
    **more: Any,
) -> tuple[TuningForecast, Library, list[str]]:
    library = Library(clock=clock, slowdown=slowdown, stall_s=stall_s, drift=drift)
    usable = selftest.Library(folder=Path(), heads=frozenset())
    monkeypatch.setattr(engines, "check_library", lambda _install: usable)
    monkeypatch.setattr(engines, "make", lambda *_, **__: library)
    monkeypatch.setattr("ggufspec.forecast.profiles.traces", _traces)
    server = Server(library=library, name="server", keeps_loads=True)
    deadline = Deadline.start(limit_s, run_share=0.25, clock=clock)
    limited = replace(plan, session=replace(plan.session, engine=server), deadline=deadline, **more)
    notes: list[str] = []
    steps: Generator[Any, None, TuningForecast] = looking.forecast_configurations(limited)
    return finish(steps, lambda event: notes.extend(event.notes)), library, notes


def test_the_forecast_keeps_to_its_plan(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outlook, library, notes = _look(plan, clock, 1.0, monkeypatch)
    assert outlook.prospects
    assert clock.now < LIMIT_S / 2
    assert library.longest_s <= LIMIT_S / 4
    assert notes[0].startswith("--max-time 2m: ")
    assert outlook.pace.token_s == pytest.approx(TOKEN_S)


@pytest.mark.parametrize("slowdown", [2.0, 5.0, 10.0])
def test_a_machine_that_became_slower_gets_a_smaller_forecast(
    plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch, slowdown: float
) -> None:
    quick, _, _ = _look(plan, clock, 1.0, monkeypatch)
    clock.now = 0.0
    outlook, library, _ = _look(plan, clock, slowdown, monkeypatch)
    assert outlook.prospects
    assert 1 <= len(outlook.prompts) <= len(quick.prompts)
    assert clock.now <= LIMIT_S * 0.8  # there is time to measure
    assert library.longest_s <= LIMIT_S / 4


def test_slow_costs_leave_time_for_runs(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, library, _ = _look(plan, clock, 1.0, monkeypatch, limit_s=60.0)
    assert usual.calibration.runs
    assert "run" in library.seen
    clock.now = 0.0
    anew = replace(plan, fresh=True)  # not the costs that were stored above
    outlook, library, _ = _look(anew, clock, 1.0, monkeypatch, limit_s=60.0, stall_s=14.0)
    assert outlook.prospects
    assert "run" not in library.seen
    assert clock.now < 60.0 * 0.8


def test_slow_models_are_refused(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeLimitError) as caught:
        _look(plan, clock, 10_000.0, monkeypatch)
    assert caught.value.message.startswith("--max-time 2m is too short for this model on this machine")
    assert "--timeout" not in f"{caught.value.message} {caught.value.hint}"
    least = units.parse_duration(str(caught.value.hint).split()[-1])
    assert least > LIMIT_S
    assert clock.now <= LIMIT_S


def test_a_forecast_alone_measures_little(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    outlook, library, _ = _look(plan, clock, 1.0, monkeypatch, forecast_only=True)
    assert library.seen.count("run") == 3 * 3  # of each three, the first of which warms up
    assert outlook.prospects
    assert outlook.calibration.runs == 3 * 2


def test_the_target_alone_has_one_speed_in_all_forecasts(
    plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target, drafter = (paths.models_dir() / "demo" / f"{kind}.gguf" for kind in ("target", "drafter"))
    drafters = (drafter, Path(shutil.copy(drafter, tmp_path / "other.gguf")))
    session = prepare_session(
        BenchOptions(target=target, draft_model=drafters, engine="server", n_predict=250)
    )
    arms = [arm for block in session.suite.blocks for arm in block.arms if arm.role is not Role.DRAFTER]
    both = replace(plan, session=session, blocks=(replace(session.suite.blocks[0], arms=tuple(arms)),))
    outlook, _, _ = _look(both, clock, 1.0, monkeypatch, drift=0.5, forecast_only=True)
    assert len({prospect.arm.drafter for prospect in outlook.prospects}) == 2
    rates = [prospect.overall.target_tokens_per_s.value for prospect in outlook.prospects]
    assert rates == pytest.approx([rates[0]] * len(rates))


def test_a_forecast_alone_needs_free_cores(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_busy(monkeypatch, 6.0)
    crowded = plan.with_threads(4)
    with pytest.raises(InconclusiveError, match=r"other programs used 6\.0 of 8 cores"):
        _look(crowded, clock, 1.0, monkeypatch, forecast_only=True)
    outlook, _, _ = _look(crowded, Clock(), 1.0, monkeypatch)  # what is measured afterwards tells
    assert outlook.prospects


def test_busy_machines_widen_forecasts(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, _, _ = _look(plan, clock, 1.0, monkeypatch, forecast_only=True)
    _make_busy(monkeypatch, 4.0)
    busy, _, _ = _look(plan, Clock(), 1.0, monkeypatch, forecast_only=True)
    assert not [note for note in quiet.notes if "other programs" in note]
    assert [note for note in busy.notes if note.startswith("calibration: other programs")]
    for ours, theirs in zip(busy.prospects, quiet.prospects, strict=True):
        assert _half_width(ours.overall.speedup) > _half_width(theirs.overall.speedup)


def _make_busy(monkeypatch: pytest.MonkeyPatch, cores: float) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 8)
    monkeypatch.setattr(machine.Watch, "conditions", lambda _: Conditions(others_cores=cores))


def _half_width(estimate: Estimate) -> float:
    return estimate.hi / estimate.lo


def test_no_category_is_left_out(plan: Plan, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = tuple(
        Prompt(id=f"{kind}{number}", text="x", category=kind) for kind in "abc" for number in range(4)
    )
    suite = replace(plan.session.suite, prompts=prompts)
    several = replace(plan, session=replace(plan.session, suite=suite))
    outlook, _, _ = _look(several, clock, 4.0, monkeypatch)
    assert 3 <= len(outlook.prompts) < 12
    assert {prompt.category for prompt in outlook.prompts} == {*"abc"}


@pytest.mark.parametrize(
    ("asked", "busy", "threads", "says"),
    [
        (None, 0.1, None, None),
        (None, 1.9, (2,), "threads: 2 of 4, because other programs are busy; -t 4 uses all"),
        (None, 9.0, (1,), "threads: 1 of 4, because other programs are busy; -t 4 uses all"),
        ((2,), 1.9, (2,), None),
        ((4,), 1.9, (4,), "threads: 4 as requested, but other programs leave 2 cores free"),
        ((1, 4), 3.0, (1, 4), "-t 1 avoids that"),
    ],
)
def test_threads_are_as_many_as_cores_are_free_unless_named(
    asked: Any, busy: float, threads: Any, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "busy_cores", lambda *_: busy)
    chosen, notes = planning.choose_threads(asked)
    assert chosen == threads
    assert (notes == ()) if says is None else (says in notes[0])
