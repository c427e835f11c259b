"""Finalists of a tuning: measured again where noise spoils them, started as printed, and tabulated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine, results, tuning
from ggufspec.analysis import MeasurementWarning, arms
from ggufspec.domain import (
    NO_PROMPT,
    Drafting,
    Launch,
    Prompt,
    Role,
    RunResult,
    RunSpec,
    Serving,
    Status,
)
from ggufspec.engines import Measurement
from ggufspec.errors import InconclusiveError
from ggufspec.llama.install import installs
from ggufspec.measure import Deadline, Session, prepare_session
from ggufspec.options import BenchOptions
from ggufspec.report import frames
from ggufspec.report.rows.plans import FinalistRow
from ggufspec.report.text import formats, tuned as tuned_report
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import Plan, Tuned, budgeting
from ggufspec.tuning.budgeting import Pace
from tests.support import fake_server, fakes, scripted, tunings, values
from tests.support.schemas import validate
from tests.support.scripted import Clock, Scripted

TOO_LATE = "the time was over before the target alone was measured"
APART = (
    "1 run of the target alone ended well, 1 of them while other programs used the machine, but no drafting "
    "run on the same prompt and repeat did"
)
BUSY = (MeasurementWarning.BUSY_MACHINE.value,)


def _failed(status: Status, **changes: Any) -> Iterator[RunResult]:
    for run in tunings.runs(g3=1.5):
        if run.spec.role is Role.TARGET:
            failed = values.run(Role.TARGET, prompt=run.spec.prompt.id, repeat=run.repeat, status=status)
            yield replace(failed, **changes)
        else:
            yield run


def _apart() -> Iterator[RunResult]:
    """The target alone and drafting, each on another prompt, beside a busy program."""
    yield replace(values.run(Role.TARGET, prompt="p1"), doubts=BUSY)
    yield replace(values.run(Role.DRAFTING, prompt="p2", draft=3), doubts=BUSY)


@pytest.fixture
def plan(llama: Path) -> Plan:
    fake_server.program(llama / "llama-server")
    session = prepare_session(BenchOptions(pair="demo", engine="server"))
    drafting = [tunings.arm(size, threads=4) for size in (3, 8)]
    block = replace(session.suite.blocks[0], arms=(drafting[0].baseline, *drafting))
    return Plan(
        session=session, serving=Serving(context=512), blocks=(block,), vram_bytes=None, precision=None
    )


def _threads(bench: tuning.NextBench) -> set[int]:
    return {arm.threads for block in bench.session.suite.blocks for arm in block.arms}


def _beside(monkeypatch: pytest.MonkeyPatch, busy: float) -> None:
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "busy_cores", lambda *_: busy)


def test_usable_runs_are_measured_once(plan: Plan) -> None:
    steps = tuning.measure_finalists(plan, tunings.hoped(g3=1.4, g8=1.5))
    first = next(steps)
    assert (first.resume, first.confirms, first.note) == (None, False, None)
    confirming = steps.send(values.bench(*tunings.runs(g3=1.5, g8=1.4)))
    assert confirming.confirms
    with pytest.raises(StopIteration) as ended:
        steps.send(values.bench(*tunings.runs(g3=1.5, g8=1.4)))
    assert ended.value.value.overall.spec.draft_size == 3
    assert _threads(first) == _threads(confirming) == {4}


def _loads(sizes: Mapping[int, float], first: int, end: int) -> Iterator[RunResult]:
    """Runs of the target alone and of draft sizes; loads make these 6 % faster and slower in turn."""
    for repeat, prompt in product(range(first, end), ("p1", "p2")):
        yield values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=50.0)
        for place, (size, gain) in enumerate(sizes.items()):
            tps = 50.0 * gain * (1.06 if (repeat + place) % 2 else 0.94)
            yield values.run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=tps, draft=size)


def _sizes(bench: tuning.NextBench) -> list[int]:
    return [arm.draft_size for block in bench.session.suite.blocks for arm in block.arms[1:]]


def _with_sizes(plan: Plan, *sizes: int) -> Plan:
    drafting = [tunings.arm(size, threads=4) for size in sizes]
    return replace(plan, blocks=(replace(plan.blocks[0], arms=(drafting[0].baseline, *drafting)),))


def test_finalists_that_are_too_close_are_loaded_again_until_one_can_be_chosen(plan: Plan) -> None:
    gains = {2: 1.2, 3: 1.5, 8: 1.51}
    steps = tuning.measure_finalists(_with_sizes(plan, *gains), tunings.hoped(g2=1.2, g3=1.5, g8=1.51))
    next(steps)
    runs = [*_loads(gains, 0, 3)]
    stored = values.bench(*runs)
    bench = steps.send(stored)
    loads = 3
    del gains[2]  # it is slower by more than chance
    while not bench.confirms:
        assert (bench.resume, _sizes(bench)) == (stored.meta.id, [3, 8])
        assert bench.session.suite.repeats == loads + 1
        assert bench.note == (
            f"2 candidates are too close to choose one by {loads} repeats: measuring them once more"
        )
        runs += _loads(gains, loads, loads + 1)
        loads += 1
        stored = values.bench(*runs)
        bench = steps.send(stored)
    assert loads == budgeting.MOST_SELECTING_REPEATS
    assert bench.session.suite.repeats == budgeting.CONFIRMING_REPEATS


@pytest.mark.parametrize(("left_s", "is_longer"), [(100.0, True), (20.0, False)])
def test_a_race_takes_no_time_from_the_confirmation(plan: Plan, left_s: float, is_longer: bool) -> None:
    clock = Clock()
    outlook = replace(tunings.hoped(g3=1.5, g8=1.51), pace=PACE)
    steps = tuning.measure_finalists(_hurried(plan, clock, 120.0), outlook)
    next(steps)
    clock.now = 120.0 - left_s
    bench = steps.send(values.bench(*_loads({3: 1.5, 8: 1.51}, 0, 3)))
    assert bench.confirms is not is_longer
    if is_longer:
        reserved_s = left_s - bench.session.deadline.left_s
        assert reserved_s > PACE.bench([1.0, 1.5, 1.5], prompts=2, n_predict=32, repeats=3)


@pytest.mark.parametrize("at", ["selection", "confirmation"])
def test_bad_runs_are_repeated_on_free_cores(plan: Plan, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    _beside(monkeypatch, busy=0.7)
    steps = tuning.measure_finalists(plan, tunings.hoped(g3=1.4, g8=1.5))
    next(steps)
    usable, spoiled = [*tunings.runs(g3=1.5, g8=1.4)], [*_failed(Status.TIMED_OUT, doubts=BUSY)]
    if at == "confirmation":
        steps.send(values.bench(*usable))
    again = steps.send(values.bench(*spoiled))
    assert _threads(again) == {2}  # 3.3 cores are free
    assert again.confirms == (at == "confirmation")
    assert again.note == (
        "none of 6 runs of the target alone succeeded (timed out), 6 of them while other programs used the "
        "machine: measuring again with 2 threads"
    )
    if at == "selection":
        assert _threads(steps.send(values.bench(*usable))) == {2}
    with pytest.raises(StopIteration) as ended:
        steps.send(values.bench(*usable))
    assert ended.value.value.overall.drafts


@pytest.mark.parametrize("threads", [1, 4])
def test_unusable_runs_name_their_cause(plan: Plan, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    _beside(monkeypatch, busy=3.9)
    steps = tuning.measure_finalists(plan.with_threads(threads), tunings.hoped(g3=1.4, g8=1.52))
    next(steps)
    spoiled = [*_failed(Status.TIMED_OUT, doubts=BUSY)]
    again = steps.send(values.bench(*spoiled))
    assert _threads(again) == {1}
    with pytest.raises(InconclusiveError) as caught:
        steps.send(values.bench(*spoiled))
    assert caught.value.message == (
        "there is no verdict: none of 6 runs of the target alone succeeded (timed out), 6 of them while "
        "other programs used the machine; the forecast alone, which nothing confirms, is 1.52× at γ = 8"
    )
    assert "stop other programs" in str(caught.value.hint)


PACE = Pace(token_s=0.02, load_s=1.0, prompt_s=0.05)


def _hurried(plan: Plan, clock: Clock, limit_s: float) -> Plan:
    return replace(plan, deadline=Deadline.start(limit_s, run_share=0.25, clock=clock))


def _measure(session: Session, clock: Clock, slowdown: float) -> ResultSet:
    """Measure a bench with runs that take so many times as long as was forecast."""

    class Slow(Scripted):
        def measure(self, spec: RunSpec, log: Path) -> Measurement:
            clock.now += PACE.answer(spec.n_predict) * slowdown
            drafting = spec.role is Role.DRAFTING
            sample = scripted.sample(spec, tps=6000.0 if drafting else 4000.0)
            return Measurement(sample=sample, argv=("x",), wall_s=1.0)

    *_, bench = scripted.record(session.suite, Slow(), values.bench(), deadline=session.deadline)
    return bench


def _finish(steps: Any, clock: Clock, slowdown: float) -> Tuned | InconclusiveError:
    """Measure each bench of a tuning; return how it ends."""
    try:
        tuned: Tuned = finish(steps, lambda bench: _measure(bench.session, clock, slowdown))
    except InconclusiveError as error:
        return error
    return tuned


@pytest.mark.parametrize("slowdown", [0.2, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("late_s", [0.0, 60.0, 110.0])
def test_runs_that_take_longer_than_forecast_end_in_time(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, slowdown: float, late_s: float
) -> None:
    """However late the forecast was: the bench that selects leaves time for the one that confirms."""
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    hurried, outlook = _hurried(plan, clock, 120.0), replace(tunings.hoped(g3=1.4, g8=1.5), pace=PACE)
    clock.now += late_s
    steps = tuning.measure_finalists(hurried, outlook)
    outcome = _finish(steps, clock, slowdown)
    if isinstance(outcome, InconclusiveError):
        assert "--max-time 2m" in outcome.message
        assert late_s or slowdown > 1
    assert clock.now <= 120.0 + PACE.answer(32) * slowdown


def test_there_is_no_time_to_repeat_after_the_limit(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    _beside(monkeypatch, busy=3.9)
    clock = Clock()
    for late_s, is_refused in ((50.0, False), (99.9, True)):
        hurried = _hurried(plan, clock, 100.0)
        steps = tuning.measure_finalists(hurried, replace(tunings.hoped(g3=1.4, g8=1.5), pace=PACE))
        next(steps)
        clock.now += late_s
        spoiled = values.bench(*_failed(Status.TIMED_OUT, doubts=BUSY))
        if is_refused:
            with pytest.raises(InconclusiveError, match="--max-time 100s"):
                steps.send(spoiled)
        else:
            assert _threads(steps.send(spoiled)) == {1}


def test_fewer_finalists_are_measured_where_the_forecast_was_slow(plan: Plan) -> None:
    clock = Clock()
    hurried = _hurried(plan, clock, 120.0)
    outlook = replace(tunings.hoped(**{f"g{size}": 1.5 for size in (3, 8)}), pace=replace(PACE, token_s=0.05))
    numbers = []
    for late_s in (0.0, 70.0, 105.0):
        clock.now = late_s
        session = tuning.finals(hurried, outlook)
        assert 0 < session.deadline.left_s < 120.0 - late_s
        numbers.append(len(session.suite.prompts) * session.suite.n_arms.total())
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize(
    ("runs", "cause"),
    [
        ([], TOO_LATE),
        ([run for run in tunings.runs(g3=1.5) if run.spec.drafting], TOO_LATE),
        ([*_failed(Status.CRASHED)], "none of 6 runs of the target alone succeeded (crashed)"),
        ([*_apart()], APART),
        ([*tunings.runs(g3=1.5)], None),
    ],
    ids=["nothing", "no target", "failed", "apart", "usable"],
)
def test_the_cause_is_named(runs: list[RunResult], cause: str | None) -> None:
    assert tuning.why_unusable(values.bench(*runs)) == cause


def test_runs_that_ended_well_and_were_disturbed_are_shown_as_that() -> None:
    assert {arm.status for arm in arms.group(values.bench(*_apart()))} == {"disturbed"}
    calm = [replace(run, doubts=()) for run in _apart()]
    assert {arm.status for arm in arms.group(values.bench(*calm))} == {"partial"}
    assert {arm.status for arm in arms.group(values.bench(*tunings.runs(g3=1.5)))} == {"ok"}


def _serve(plan: Plan, tuned: Tuned, monkeypatch: pytest.MonkeyPatch, *, working: set[int]) -> Tuned:
    """Start servers that work for some draft sizes alone; 0 is the target alone."""

    def serve_once(spec: RunSpec, *_: object, **__: object) -> Launch:
        size = spec.drafting.n_max if spec.drafting else 0
        failure = None if size in working else "out of memory"
        return Launch(argv=("/opt/llama-server", str(size)), load_s=1.0, failure=failure)

    monkeypatch.setattr("ggufspec.engines.server.serve_once", serve_once)
    return tuning.serve(plan, tuned)


def test_after_the_time_limit_no_server_is_started(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    hurried = _hurried(plan, clock, 60.0)
    clock.now = 61.0
    served = _serve(hurried, tunings.judged(g3=1.5, g8=1.3), monkeypatch, working={3})
    assert served.overall.spec.draft_size == 3
    assert served.launch.failure == "it was not tried, because --max-time 1m was over"
    assert served.passed_over == ()


def test_the_choice_is_started_before_it_is_printed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    served = _serve(plan, tunings.judged(g3=1.5, g8=1.3), monkeypatch, working={3})
    assert served.overall.spec.draft_size == 3
    assert served.launch.argv == ("/opt/llama-server", "3")
    assert served.passed_over == ()
    assert served.serving == plan.serving
    tuning.keep(served)
    stored = results.read_configuration(served.results.meta.id)
    assert stored.serving_argv == served.launch.argv
    assert stored.overall.drafts
    assert stored.overall.judgement == served.overall.judgement
    assert stored.spec.drafting == Drafting(n_max=3)
    assert stored.spec.prompt == NO_PROMPT
    assert stored.measured_argv == ("llama", "-m", "target.gguf")


def test_what_cannot_be_served_is_passed_over(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tunings.judged(g3=1.5, g8=1.3)
    second = _serve(plan, tuned, monkeypatch, working={8, 0})
    assert second.overall.spec.draft_size == 8
    assert [(spec.drafting, reason) for spec, reason in second.passed_over] == [
        (Drafting(n_max=3), "out of memory")
    ]
    assert "Not taken, although it was faster: drafter.gguf, γ = 3" in " ".join(tuned_report.verdict(second))
    alone = _serve(plan, tuned, monkeypatch, working={0})
    assert not alone.overall.drafts
    assert len(alone.passed_over) == 2


def test_a_choice_that_cannot_be_served_stays(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    served = _serve(plan, tunings.judged(g3=1.5), monkeypatch, working=set())
    assert served.overall.spec.draft_size == 3
    assert served.passed_over == ()
    assert served.launch.failure == "out of memory"
    text = tuned_report.text(served, plan.session.install, "ggufspec bench")
    assert "llama-server cannot serve it: out of memory." in text
    assert "\nllama-server:\n" not in text


def test_the_choice_for_another_engine_stays(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(plan, session=prepare_session(BenchOptions(pair="demo", engine="binary-simple")))
    served = _serve(other, tunings.judged(g3=1.5, g8=1.3), monkeypatch, working={8})
    assert served.overall.spec.draft_size == 3


def test_nothing_runs_without_a_server(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = installs.find_install(fakes.install(tmp_path / "without", **fakes.AT_ONCE))
    session = replace(plan.session, llama=install)
    served = _serve(replace(plan, session=session), tunings.judged(g3=1.5), monkeypatch, working={3})
    assert served.launch is None
    assert served.serving == plan.serving


def test_the_finalists_are_a_table_with_the_verdict(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    served = _serve(plan, tunings.judged(g3=1.5, g8=1.3), monkeypatch, working={3})
    table = frames.finalists(served)
    assert tuple(table.columns) == FinalistRow.names()
    assert [*table["stage"]] == ["confirmation"] * 3 + ["selection"] * 3
    (recommended,) = table[table["recommended"]].to_dict("records")
    assert (recommended["stage"], recommended["draft"]) == ("confirmation", 3)
    assert recommended["speedup"] == pytest.approx(1.5, rel=0.01)
    assert recommended["forecast_speedup"] == pytest.approx(1.5)
    assert set(table["serve_context"]) == {512}
    origin = frames.origin(served.results.meta)
    rows = json.loads(formats.render(table, "json", origin=origin, schema="finalists"))
    validate("finalists", rows)
    facts = json.loads(tuned_report.as_json(served, plan.session.install, "ggufspec bench"))
    assert [row["draft"] for row in facts["finalists"] if row["recommended"]] == [3]
    assert len(facts["finalists"]) == len(table)
    assert facts["launch"]["argv"] == ["/opt/llama-server", "3"]


def test_a_winner_is_confirmed_on_prompts_that_did_not_select_it(plan: Plan) -> None:
    prompts = plan.session.suite.prompts
    assert len(prompts) == 8
    outlook = replace(tunings.hoped(g3=1.4, g8=1.5), prompts=prompts)
    selecting = tuning.finals(plan, outlook)
    ids = {prompt.id for prompt in selecting.suite.prompts}
    assert (len(ids), selecting.suite.repeats) == (4, 3)  # two loads would give no test
    runs = [
        values.run(Role.DRAFTING if size else Role.TARGET, prompt=name, repeat=repeat, draft=size)
        for name in ids
        for repeat in range(3)
        for size in (None, 3, 8)
    ]
    selection = tuning.select_arms(values.bench(*runs))
    confirming = tuning.confirmation(plan, outlook, selection)
    assert len(confirming.suite.prompts) == 4
    assert not ids & {prompt.id for prompt in confirming.suite.prompts}


def test_few_prompts_select_and_confirm() -> None:
    few = [Prompt(id=f"p{number}", text="x") for number in range(5)]
    assert budgeting.selecting_prompts(few, 0) == tuple(few)
    assert budgeting.confirming_prompts(few, few[:3]) == tuple(few)
    many = [Prompt(id=f"q{number}", text="x") for number in range(40)]
    assert budgeting.selecting_prompts(many[:10], 30) == tuple(many[:10])
    assert len(budgeting.confirming_prompts(many[:10], many[10:])) == 10
