from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec import doubts
from ggufspec.domain import Offload, Role, Status
from ggufspec.doubts import ADVICE, Doubt
from tests import values


def test_every_doubt_has_advice() -> None:
    assert set(ADVICE) == set(Doubt)


@pytest.mark.parametrize(
    ("threads", "busy", "found"),
    [
        (2, 0.0, ()),
        (2, 0.1, ()),
        (3, 0.0, (Doubt.THREADS_ABOVE_FREE_CORES,)),
        (2, 1.0, (Doubt.THREADS_ABOVE_FREE_CORES, Doubt.BUSY_MACHINE)),
        (1, 1.0, (Doubt.BUSY_MACHINE,)),
    ],
)
def test_before(threads: int, busy: float, found: tuple[Doubt, ...]) -> None:
    assert doubts.before(values.MACHINE, threads=threads, busy_cores=busy) == found


@pytest.mark.parametrize(
    ("offload", "gpu", "found"),
    [
        (Offload(target_layers=45, draft_layers=0), True, (Doubt.DRAFTER_ON_CPU,)),
        (Offload(target_layers=45, draft_layers="all"), True, ()),
        (Offload(target_layers=45), True, ()),
        (Offload(target_layers=0, draft_layers=0), True, ()),
        (Offload(target_layers=45, draft_layers=0), False, (Doubt.GPU_LESS_BUILD,)),
        (Offload(), False, ()),
    ],
)
def test_offload(offload: Offload, gpu: bool, found: tuple[Doubt, ...]) -> None:
    run = values.run(Role.DRAFTING, draft=3)
    assert doubts.of_run(replace(run, spec=replace(run.spec, offload=offload)), gpu=gpu) == found


@pytest.mark.parametrize(
    ("devices", "found"), [(("CPU",), (Doubt.GPU_LESS_BUILD,)), (("CPU", "CUDA0"), ()), ((), ())]
)
def test_a_build_of_unknown_kind_is_judged_by_its_log(
    devices: tuple[str, ...], found: tuple[Doubt, ...]
) -> None:
    run = values.run()
    run = replace(
        run,
        spec=replace(run.spec, offload=Offload(target_layers="all")),
        sample=replace(run.sample, devices=devices),
    )
    assert doubts.of_run(run, gpu=None) == found


def test_disturbed_retried_inactive_and_different_runs() -> None:
    run = values.run(Role.DRAFTING, draft=3)
    assert doubts.of_run(replace(run, others_cores=0.5), gpu=False) == (Doubt.BUSY_MACHINE,)
    assert doubts.of_run(replace(run, attempts=2), gpu=False) == (Doubt.SUMMARY_RETRIED,)
    assert doubts.of_run(replace(run, text_identical=False), gpu=False) == (Doubt.TEXT_DIFFERS,)
    silent = values.run(Role.DRAFTING, draft=3, status=Status.DRAFTING_INACTIVE)
    assert doubts.of_run(silent, gpu=False) == (Doubt.DRAFTING_INACTIVE,)
