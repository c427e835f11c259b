from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from ggufspec.analysis import arms, comparing, guarding, map_crossover, review, warnings
from ggufspec.analysis.arm import Failures
from ggufspec.analysis.warnings import ADVICE, MeasurementWarning
from ggufspec.choices import Layers
from ggufspec.domain import (
    Conditions,
    Difference,
    LoadedModel,
    Missing,
    ModelRun,
    Offload,
    Prompt,
    RequestOutcome,
    Role,
    RunProblem,
    RunResult,
    Sample,
    SpeedVerdict,
    Status,
    TextVerdict,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.errors import InconclusiveError
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.report.text import comparison, crossovers, judgements
from ggufspec.results import CrossoverAxes, ResultSet
from tests.support import crossed, values


@pytest.mark.parametrize(
    ("cached", "kept", "is_lost"), [(96, 100, False), (100, None, False), (60, 100, True), (None, 100, True)]
)
def test_a_slot_that_lost_its_cache(cached: int | None, kept: int | None, is_lost: bool) -> None:
    run = values.run()
    run = replace(run, sample=replace(run.sample, cached_tokens=cached, kept_tokens=kept))
    found = warnings.of_run(run, gpu=None)
    assert (MeasurementWarning.CACHE_LOST in found) == is_lost


def test_every_warning_has_advice() -> None:
    assert set(ADVICE) == set(MeasurementWarning)


@pytest.mark.parametrize(
    ("threads", "busy", "found"),
    [
        (2, 0.0, ()),
        (2, 0.1, ()),
        (3, 0.0, ("threads-above-free-cores",)),
        (2, 1.0, ("threads-above-free-cores", "busy-machine")),
        (1, 1.0, ("busy-machine",)),
        (1, 2.0, ("busy-machine",)),
    ],
)
def test_before(threads: int, busy: float, found: tuple[str, ...]) -> None:
    assert warnings.before(values.MACHINE.cores, threads=threads, busy_cores=busy) == found


@pytest.mark.parametrize(
    ("target", "drafter", "gpu", "found"),
    [
        (45, 0, True, ("drafter-on-cpu",)),
        (45, "all", True, ()),
        (45, "auto", True, ()),
        (0, 0, True, ()),
        (45, 0, False, ("gpu-less-build",)),
        ("auto", "auto", False, ()),
    ],
)
def test_offload(target: Layers, drafter: Layers, gpu: bool, found: tuple[str, ...]) -> None:
    run = values.run(Role.DRAFTING, draft=3)
    offload = Offload(target=ModelRun(layers=target), drafter=ModelRun(layers=drafter))
    run = replace(run, sample=replace(run.sample, target=None))  # no log says what became of it
    assert warnings.of_run(replace(run, spec=replace(run.spec, offload=offload)), gpu=gpu) == found


@pytest.mark.parametrize(
    ("devices", "found"), [(("CPU",), ("gpu-less-build",)), (("CPU", "CUDA0"), ()), ((), ())]
)
def test_a_log_tells_unknown_builds(devices: tuple[str, ...], found: tuple[str, ...]) -> None:
    run = values.run()
    run = replace(
        run,
        spec=replace(run.spec, offload=Offload(target=ModelRun(layers="all"))),
        sample=replace(run.sample, devices=devices, target=LoadedModel(offloaded_layers=7)),
    )
    assert warnings.of_run(run, gpu=None) == found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"conditions": Conditions(others_cores=0.5)}, ("busy-machine",)),
        ({"conditions": Conditions(swapped_bytes=1 << 30)}, ("swapping",)),
        ({"conditions": Conditions(gpu_throttled=())}, ()),
        # usual under full load; somebody's own choice; said while clocks change, too
        ({"conditions": Conditions(gpu_throttled=("sw-power-cap", "applications-clocks"))}, ()),
        ({"conditions": Conditions(gpu_throttled=("hw-slowdown",))}, ()),
        ({"conditions": Conditions(gpu_throttled=("sw-thermal",))}, ("gpu-throttled",)),
        ({"conditions": Conditions(gpu_throttled=("hw-power-brake", "hw-slowdown"))}, ("gpu-throttled",)),
        ({"attempts": 2}, ("summary-retried",)),
        ({"sample": Sample(status=Status.DRAFTING_INACTIVE)}, ("drafting-inactive",)),
    ],
)
def test_runs_with_warnings(changes: dict[str, Any], found: tuple[str, ...]) -> None:
    assert warnings.of_run(replace(values.run(Role.DRAFTING, draft=3), **changes), gpu=False) == found


@pytest.mark.parametrize(
    ("threads", "others", "crowded"),
    [(2, None, False), (2, 0.4, False), (2, 0.67, True), (1, 2.0, False), (3, 0.0, True), (4, 0.0, True)],
)
def test_a_run_with_more_threads_than_free_cores(threads: int, others: float | None, crowded: bool) -> None:
    run = replace(values.run(), conditions=Conditions(others_cores=others))
    run = replace(run, spec=replace(run.spec, threads=threads))
    found = warnings.of_run(run, gpu=False, cores=2)
    assert (MeasurementWarning.THREADS_ABOVE_FREE_CORES in found) is crowded
    assert MeasurementWarning.THREADS_ABOVE_FREE_CORES not in warnings.of_run(run, gpu=False)


def test_every_run_has_one_outcome_and_the_gravest_wins() -> None:
    run = values.run(Role.DRAFTING, draft=3)
    busy = (MeasurementWarning.BUSY_MACHINE.value,)
    near = Difference(at_char=3, at_token=1, verdict=TextVerdict.NEAR_TIE)
    assert warnings.outcome(run) is Status.OK
    assert warnings.outcome(replace(run, doubts=busy)) is RunProblem.DISTURBED
    assert warnings.outcome(replace(run, doubts=busy, text_identical=False)) is RunProblem.TEXT_DIFFERS
    assert warnings.outcome(replace(run, text_identical=False, difference=near)) is Status.OK
    for name in ("GPU_LESS_BUILD", "FEWER_LAYERS", "SPILLED", "DEVICE_UNUSED"):
        doubted = replace(run, doubts=(MeasurementWarning[name].value,))
        assert warnings.outcome(doubted) is RunProblem[name]
    for status in Status:
        assert warnings.outcome(replace(run, sample=Sample(status=status))).value == status.value


def test_a_text_that_differs_is_a_fault_until_a_near_tie_explains_it() -> None:
    run = replace(values.run(Role.DRAFTING, draft=3), text_identical=False)
    place = Difference(at_char=3, at_token=1)
    for unjudged in (run, replace(run, difference=place)):
        assert warnings.of_text(unjudged) is MeasurementWarning.NOT_JUDGED
        assert warnings.outcome(unjudged) is RunProblem.TEXT_DIFFERS
    judged = replace(place, verdict=TextVerdict.DIVERGENCE)
    assert warnings.of_text(replace(run, difference=judged)) is MeasurementWarning.TEXT_DIFFERS
    near = replace(place, verdict=TextVerdict.NEAR_TIE)
    assert warnings.of_text(replace(run, difference=near)) is MeasurementWarning.NEAR_TIES
    assert warnings.of_text(replace(run, text_identical=True)) is None


# Arms that do not fail alike: what is left of them may be their fast runs, so nothing is found


def _bench(
    failing: Mapping[Role, int] | None = None,
    status: Status = Status.TIMED_OUT,
    change: Callable[[RunResult], RunResult] = lambda run: run,
) -> ResultSet:
    """The target alone, and drafting that is 1.5 times as fast; so many of an arm's first runs fail."""
    runs, left = [], Counter(failing or {})
    for run in map(change, values.grid({None: 50.0, 3: 75.0}, repeats=5, noise=0.01)):
        fails = left[run.spec.role] > 0
        left[run.spec.role] -= 1
        runs.append(replace(run, sample=replace(run.sample, status=status)) if fails else run)
    return values.bench(*runs)


@pytest.mark.parametrize(
    ("failing", "is_found"),
    [
        ({}, True),
        ({Role.DRAFTING: 1}, True),  # an accident
        ({Role.DRAFTING: 2}, False),
        ({Role.TARGET: 2}, False),
        ({Role.TARGET: 3, Role.DRAFTING: 3}, True),  # alike
        ({Role.TARGET: 5, Role.DRAFTING: 3}, False),
    ],
)
@pytest.mark.parametrize("status", [Status.TIMED_OUT, Status.CRASHED])
def test_unequal_failures_are_no_finding(failing: Mapping[Role, int], is_found: bool, status: Status) -> None:
    bench = _bench(failing, status)
    judged = arms.group(bench)[1].judgement
    assert judged.ratio.value == pytest.approx(1.5, rel=0.02)  # is shown, whatever may be found of it
    assert (judged.ratio.lo is not None) is is_found
    assert judged.verdict is (SpeedVerdict.FASTER if is_found else SpeedVerdict.UNDECIDED)
    assert judged.missing == (() if is_found else (Missing.FAILURES,))
    assert ("unequal-failures" in review.warnings(bench)) is not is_found
    if not is_found:
        (sentence,) = judgements.deciding(bench, judged)
        assert sentence.startswith(f"See why runs failed (`ggufspec show {bench.meta.id} --runs`)")
        assert "the slow ones may be those that fail" in judgements.needs(judged)


def test_a_few_failures_of_very_many_change_no_mean() -> None:
    none = Failures(failed=0, of=500)
    assert not Failures(failed=10, of=500).differs_from(none)
    assert Failures(failed=11, of=500).differs_from(none)


def _serve(run: RunResult, *, failed: int) -> RunResult:
    """Return a run that served several users; requests of the arm that drafts fail."""
    failing = failed if run.spec.role is Role.DRAFTING else 0
    requests = tuple(
        UserRequest(
            prompt=0,
            outcome=RequestOutcome.TIMED_OUT if number < failing else RequestOutcome.OK,
            is_steady=True,
            tokens=100,
        )
        for number in range(20)
    )
    stopped = UserRequest(prompt=0, outcome=RequestOutcome.STOPPED, is_steady=False, tokens=0)
    traffic = Traffic(users=4, prompts=(Prompt(id="p0", text="words"),), n_requests=20)
    sample = replace(
        run.sample, traffic=TrafficSample(requests=(*requests, stopped, stopped, stopped), window_tokens=100)
    )
    return replace(run, spec=replace(run.spec, traffic=traffic), sample=sample)


@pytest.mark.parametrize(("failed", "is_found"), [(0, True), (1, False)])
def test_requests_of_several_users_count_like_runs(failed: int, is_found: bool) -> None:
    """One of twenty in each of the runs; those that ggufspec stops at the end did not fail."""
    judged = arms.group(_bench(change=lambda run: _serve(run, failed=failed)))[1].judgement
    assert judged.is_decided is is_found


def test_sessions_that_do_not_fail_alike_give_no_verdict() -> None:
    alike = comparing.compare([_bench()] * 3, [_bench()] * 3)
    unlike = comparing.compare([_bench()] * 3, [_bench({Role.DRAFTING: 4})] * 3)
    assert alike.no_verdict is None
    assert "drafting target.gguf + drafter.gguf γ=3 failed more often on one side" in (
        unlike.no_verdict or ""
    )
    assert {row.change.verdict for row in unlike.rows} == {None}
    assert [row.change.ratio.lo is None for row in unlike.rows] == [False, True]
    assert "Runs of" not in "".join(comparison.basis(alike))
    assert "failed more often" in "".join(comparison.basis(unlike))
    with pytest.raises(InconclusiveError, match="failed more often"):
        guarding.guard(unlike, 0.02)


def test_a_cell_of_a_crossover_whose_arms_do_not_fail_alike_is_undecided() -> None:
    axes = CrossoverAxes(users=(1,), depths=(0,))
    runs = [*crossed.bench([(1, 0)], lambda *_: 1.5, repeats=5).runs]
    lost = [
        replace(run, sample=replace(run.sample, status=Status.TIMED_OUT))
        if run.spec.role is Role.TARGET and run.repeat < 2
        else run
        for run in runs
    ]
    whole, cut = (map_crossover(values.bench(*of), axes) for of in (runs, lost))
    assert whole.by_point[TrafficPoint(1, 0)].verdict is SpeedVerdict.FASTER
    assert cut.by_point[TrafficPoint(1, 0)].verdict is SpeedVerdict.UNDECIDED
    assert "runs that fail alike" in crossovers.policy(cut)
