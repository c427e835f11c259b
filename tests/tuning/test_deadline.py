"""A time limit is kept: what is planned fits into it, and what takes longer than planned is ended."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import units
from ggufspec.domain import Prompt, Role, RunSpec, Status, Traffic
from ggufspec.engines import Measurement
from ggufspec.errors import TimeLimitError
from ggufspec.measure import Block, Deadline, RunPlan
from ggufspec.results import ResultSet
from ggufspec.steps import Sink
from ggufspec.tuning import budgeting
from ggufspec.tuning.budgeting import CellPace, Pace, Wanted
from tests.support import scripted, values
from tests.support.scripted import Clock, Scripted

TUNING = {"run_share": 0.25}


def _start(limit_s: float | None, clock: Clock, **more: float) -> Deadline:
    return Deadline.start(limit_s, clock=clock, **more)


@pytest.mark.parametrize(
    ("limit_s", "passed_s", "ask", "answer"),
    [
        (60.0, 2.0, lambda limit: (limit.elapsed_s, limit.left_s, limit.longest_run_s), (2.0, 58.0, 15.0)),
        (60.0, 52.0, lambda limit: (limit.fits(8.0), limit.fits(8.1), limit.is_over()), (True, False, False)),
        (60.0, 61.0, lambda limit: (limit.is_over(), limit.without(20.0).is_over()), (True, False)),
        (60.0, 0.0, lambda limit: (limit.timeout_s(), limit.timeout_s(3.0)), (15.0, 3.0)),
        (60.0, 59.0, lambda limit: limit.timeout_s(), pytest.approx(7.0)),  # a tenth after its end
        (60.0, 159.0, lambda limit: 0 < limit.timeout_s() < 1, True),
        (60.0, 0.0, lambda limit: limit.reserve(5.0).left_s, 55.0),
        (60.0, 0.0, lambda limit: limit.stage(99.0).left_s, 60.0),  # never more than there is
        (
            None,
            1e9,
            lambda limit: (limit.is_over(), limit.timeout_s(), limit.timeout_s(5.0)),
            (False, None, 5.0),
        ),
        (None, 1e9, lambda limit: limit.stage(1.0).left_s, math.inf),
        (120.0, 12.4, lambda limit: limit.describe_left(), "12 s elapsed, 1 min 48 s left"),
        (120.0, 512.4, lambda limit: limit.describe_left(), "8 min 32 s elapsed, 0 s left"),
    ],
)
def test_a_limit_counts_from_its_beginning(
    limit_s: float | None, passed_s: float, ask: Callable[[Deadline], object], answer: object
) -> None:
    assert ask(_start(limit_s, Clock(), begun_s=-passed_s, **TUNING)) == answer


def test_a_stage_leaves_time_for_those_after_it() -> None:
    clock = Clock()
    deadline = _start(60.0, clock, **TUNING)
    stage = deadline.stage(10.0)
    assert stage.left_s == 10.0
    clock.now += 11
    assert stage.is_over()
    assert not deadline.is_over()


def test_what_a_search_of_the_hub_took_is_said_and_no_longer_shown_as_elapsed() -> None:
    clock, said, shown = Clock(), [], []

    class Watching(Sink):
        def say(self, sentence: str) -> None:
            said.append(sentence)

        def show(self, event: object) -> None:
            shown.append(event)

    deadline = _start(60.0, clock)
    clock.now += 48
    later = deadline.without_network(0.0, Watching(), "search for drafters")
    assert said == ["search for drafters: 48.0 s not counted for --max-time"]
    assert (shown, later.left_s) == ([later], 60.0)


@pytest.mark.parametrize("users", [None, 4])
@pytest.mark.parametrize("forecast_only", [False, True])
def test_what_is_planned_fits_into_the_limit_or_is_refused(users: int | None, forecast_only: bool) -> None:
    dice = random.Random(1)
    planned = refused = 0
    for _ in range(120):
        clock = Clock()
        token_s = 10 ** dice.uniform(-3.3, 0.5)
        pace = Pace(
            token_s=token_s,
            load_s=10 ** dice.uniform(-1, 1.5),
            prompt_s=token_s * dice.uniform(0, 50),
            trace_token_s=token_s * dice.uniform(1, 2),
            shared_s=token_s * dice.uniform(0.3, 1),
        )
        wanted = Wanted(
            prompts=dice.randint(1, 40),
            n_predict=dice.choice([16, 96, 250, 1000]),
            users=users,
            costs_s=token_s * dice.uniform(0, 1000),
            forecast_only=forecast_only,
        )
        deadline = _start(10 ** dice.uniform(1, 3.6), clock, **TUNING)
        clock.now += dice.uniform(0, 0.2) * (deadline.limit_s or 0)
        left_s = deadline.left_s
        try:
            budget = budgeting.plan_budget(deadline, pace, wanted)
        except TimeLimitError as error:
            refused += 1
            least = units.parse_duration(error.message.rpartition(" ")[2])
            assert least > (deadline.limit_s or 0)
            longer = replace(deadline, limit_s=least)
            assert budgeting.plan_budget(longer, pace, wanted).total_s <= longer.left_s
            continue
        planned += 1
        assert budget.total_s <= left_s
        assert budget.traces_s + budget.costs_s + budget.calibration_s <= budget.total_s
        assert 1 <= budget.prompts <= wanted.prompts
        assert min(16, wanted.n_predict) <= budget.n_predict <= wanted.n_predict
        run_s = pace.longest_run(budget.n_predict, wanted.prompts, users)
        assert run_s <= deadline.longest_run_s
        assert (budget.verdict_s is None) is (budget.repeats == budgeting.CONFIRMING_REPEATS)
        if budget.verdict_s is not None:
            assert budget.verdict_s > left_s
    assert planned
    assert refused


def test_what_does_not_fit_is_left_out_in_order() -> None:
    """Candidates go first, then points of the cost curves, then lengths and numbers of prompts."""
    pace = Pace(token_s=0.01, load_s=0.5, prompt_s=0.1)
    wanted = Wanted(prompts=12, n_predict=250, costs_s=5.0)
    clock = Clock()
    budgets = []
    for seconds in (36_000, 900, 700, 500, 300, 200, 120, 60):
        budgets.append(budgeting.plan_budget(_start(float(seconds), clock, **TUNING), pace, wanted))
    most = budgets[0]
    assert (most.finalists, most.n_predict, most.prompts) == (budgeting.FINALISTS, 250, 12)
    for shorter, longer in zip(budgets[1:], budgets, strict=False):
        assert shorter.finalists <= longer.finalists
        assert shorter.costs_s <= longer.costs_s
        assert shorter.n_predict <= longer.n_predict
        assert shorter.prompts <= longer.prompts
        if shorter.n_predict < 250:
            assert shorter.finalists == 2
            assert shorter.costs_s == pytest.approx(5.0)
        if shorter.prompts < 12:
            assert shorter.n_predict <= 48
    assert budgets[-1].prompts < 12


def test_the_notes_say_what_fits_and_what_a_verdict_needs() -> None:
    pace = Pace(token_s=0.05, load_s=1.0, prompt_s=0.1)
    wanted = Wanted(prompts=12, n_predict=250)
    clock = Clock()

    def notes(seconds: float) -> str:
        deadline = _start(seconds, clock, **TUNING)
        budget = budgeting.plan_budget(deadline, pace, wanted)
        return "\n".join(budgeting.describe_budget(budget, wanted, deadline))

    assert "--max-time 4h: 6 candidates, 12 prompts of 250 tokens" in notes(14_400.0)
    assert "too short" not in notes(14_400.0)
    short = notes(90.0)
    assert "-n 250 is shortened to" in short
    assert "--max-time 90s is too short for a verdict, which needs --max-time " in short


def test_the_first_cells_of_a_crossover_fit_or_are_refused() -> None:
    alone = Pace(token_s=0.01, shared_s=0.004, load_s=0.5, prompt_s=0.05)
    pace = CellPace(users=8, pace=alone, prompt_tokens=20)
    sent = [Traffic(users=users, n_requests=20 * users) for users in (1, 8)]
    arm = replace(values.spec(), n_predict=96)
    cells = [Block(arms=(replace(arm, traffic=traffic),) * 4) for traffic in sent]
    clock = Clock()
    for seconds in (60.0, 120.0, 240.0, 480.0, 3600.0):
        deadline = _start(seconds, clock, **TUNING)
        try:
            size, repeats = budgeting.plan_cells(deadline, pace, cells, 2)
        except TimeLimitError as error:
            least = units.parse_duration(error.message.rpartition(" ")[2])
            size, repeats = budgeting.plan_cells(_start(least, clock, **TUNING), pace, cells, 2)
            assert 16 <= size <= 48
            assert repeats == 1
            continue
        runs = [pace.run(traffic, size) for traffic in sent]
        assert max(runs) <= deadline.longest_run_s
        assert repeats * 4 * sum(runs) <= seconds
    assert (size, repeats) == (96, 2)


class SlowEngine(Scripted):
    """Runs that move a clock, and are ended by the engine's time limit."""

    def __init__(self, clock: Clock, run_s: float) -> None:
        super().__init__()
        self.clock, self.run_s = clock, run_s

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        ended = self.timeout_s is not None and self.timeout_s < self.run_s
        self.clock.now += self.timeout_s if ended and self.timeout_s is not None else self.run_s
        measured = super().measure(spec, log)
        if not ended:
            return measured
        return replace(measured, sample=replace(measured.sample, status=Status.TIMED_OUT), error="killed")


def _suite(repeats: int = 3) -> RunPlan:
    arms = (values.spec(Role.TARGET), values.spec(Role.DRAFTING, draft=3))
    prompts = tuple(Prompt(id=f"p{number}", text="x") for number in range(4))
    return RunPlan(blocks=(Block(arms=arms),), prompts=prompts, repeats=repeats)


def _record(engine: Scripted, deadline: Deadline) -> ResultSet:
    *_, bench = scripted.record(_suite(), engine, values.bench(), deadline=deadline)
    return bench


@pytest.mark.parametrize("run_s", [0.5, 1.0, 3.0, 7.0])
def test_a_bench_ends_before_a_run_that_would_not_fit(run_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    engine = SlowEngine(clock, run_s)
    bench = _record(engine, _start(10.0, clock))
    assert clock.now <= 10.0
    assert len(bench.runs) == len(engine.seen) >= 1
    assert {run.sample.status for run in bench.runs} == {Status.OK}
    assert engine.timeout_s is None  # as it was


def test_a_run_beyond_a_limit_is_left_out_or_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    bench = _record(SlowEngine(clock, 60.0), _start(10.0, clock))
    assert not bench.runs
    assert 10.0 <= clock.now <= 11.0
    assert not list((bench.folder / "logs").glob("*.err"))
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    bench = _record(SlowEngine(clock, 60.0), _start(40.0, clock, **TUNING))
    assert {run.sample.status for run in bench.runs} == {Status.TIMED_OUT}
    assert bench.runs[0].error == "killed: no run may take more than a quarter of --max-time 40s"
    assert clock.now <= 44.0
