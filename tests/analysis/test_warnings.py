from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec.analysis import warnings
from ggufspec.analysis.warnings import ADVICE, MeasurementWarning
from ggufspec.domain import (
    Conditions,
    Difference,
    LoadedModel,
    ModelRun,
    Offload,
    Role,
    RunProblem,
    Sample,
    Status,
    TextVerdict,
)
from tests.support import values


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
        (3, 0.0, (MeasurementWarning.THREADS_ABOVE_FREE_CORES,)),
        (2, 1.0, (MeasurementWarning.THREADS_ABOVE_FREE_CORES, MeasurementWarning.BUSY_MACHINE)),
        (1, 1.0, (MeasurementWarning.BUSY_MACHINE,)),
        (1, 2.0, (MeasurementWarning.BUSY_MACHINE,)),
    ],
)
def test_before(threads: int, busy: float, found: tuple[MeasurementWarning, ...]) -> None:
    assert warnings.before(values.MACHINE, threads=threads, busy_cores=busy) == found


@pytest.mark.parametrize(
    ("offload", "gpu", "found"),
    [
        (
            Offload(target=ModelRun(layers=45), drafter=ModelRun(layers=0)),
            True,
            (MeasurementWarning.DRAFTER_ON_CPU,),
        ),
        (Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all")), True, ()),
        (Offload(target=ModelRun(layers=45)), True, ()),
        (Offload().on_processor, True, ()),
        (
            Offload(target=ModelRun(layers=45), drafter=ModelRun(layers=0)),
            False,
            (MeasurementWarning.GPU_LESS_BUILD,),
        ),
        (Offload(), False, ()),
    ],
)
def test_offload(offload: Offload, gpu: bool, found: tuple[MeasurementWarning, ...]) -> None:
    run = values.run(Role.DRAFTING, draft=3)
    run = replace(run, sample=replace(run.sample, target=None))  # no log says what became of it
    assert warnings.of_run(replace(run, spec=replace(run.spec, offload=offload)), gpu=gpu) == found


@pytest.mark.parametrize(
    ("devices", "found"), [(("CPU",), (MeasurementWarning.GPU_LESS_BUILD,)), (("CPU", "CUDA0"), ()), ((), ())]
)
def test_a_build_of_unknown_kind_is_judged_by_its_log(
    devices: tuple[str, ...], found: tuple[MeasurementWarning, ...]
) -> None:
    run = values.run()
    run = replace(
        run,
        spec=replace(run.spec, offload=Offload(target=ModelRun(layers="all"))),
        sample=replace(run.sample, devices=devices, target=LoadedModel(offloaded_layers=7)),
    )
    assert warnings.of_run(run, gpu=None) == found


def test_disturbed_retried_inactive_and_different_runs() -> None:
    run = values.run(Role.DRAFTING, draft=3)
    busy, swapping = Conditions(others_cores=0.5), Conditions(swapped_bytes=1 << 30)
    assert warnings.of_run(replace(run, conditions=busy), gpu=False) == (MeasurementWarning.BUSY_MACHINE,)
    assert warnings.of_run(replace(run, conditions=swapping), gpu=False) == (MeasurementWarning.SWAPPING,)
    assert warnings.of_run(replace(run, attempts=2), gpu=False) == (MeasurementWarning.SUMMARY_RETRIED,)
    silent = values.run(Role.DRAFTING, draft=3, status=Status.DRAFTING_INACTIVE)
    assert warnings.of_run(silent, gpu=False) == (MeasurementWarning.DRAFTING_INACTIVE,)


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


@pytest.mark.parametrize(
    ("reasons", "found"),
    [
        (None, ()),
        ((), ()),
        (("sw-power-cap", "applications-clocks"), ()),  # usual under full load; somebody's own choice
        (("hw-slowdown",), ()),  # said while clocks change, too
        (("sw-thermal",), (MeasurementWarning.GPU_THROTTLED,)),
        (("hw-power-brake", "hw-slowdown"), (MeasurementWarning.GPU_THROTTLED,)),
    ],
)
def test_a_gpu_that_slowed_down(
    reasons: tuple[str, ...] | None, found: tuple[MeasurementWarning, ...]
) -> None:
    run = replace(values.run(), conditions=Conditions(gpu_throttled=reasons))
    assert warnings.of_run(run, gpu=False) == found


def test_every_run_has_one_outcome_and_the_gravest_wins() -> None:
    run = values.run(Role.DRAFTING, draft=3)
    busy = (MeasurementWarning.BUSY_MACHINE.value,)
    near = Difference(at_char=3, at_token=1, verdict=TextVerdict.NEAR_TIE)
    assert warnings.outcome(run) is Status.OK
    assert warnings.outcome(replace(run, doubts=busy)) is RunProblem.DISTURBED
    assert warnings.outcome(replace(run, doubts=busy, text_identical=False)) is RunProblem.TEXT_DIFFERS
    assert warnings.outcome(replace(run, text_identical=False, difference=near)) is Status.OK
    assert (
        warnings.outcome(replace(run, doubts=(MeasurementWarning.GPU_LESS_BUILD.value,)))
        is RunProblem.GPU_LESS_BUILD
    )
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
