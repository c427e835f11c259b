"""Where real programs of every kind say that the embedded pair went, and that they take what places it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import ModelRun, Offload, Role, Status
from ggufspec.llama.install.installs import Install
from tests.support import embedded, values

NOWHERE = Offload(
    target=ModelRun(layers=0, devices=("none",), cpu_moe=2),
    drafter=ModelRun(layers=0, cpu_moe="all"),
    fit=False,
    tensor_split=(3.0, 1.0),
)


@pytest.mark.parametrize("name", engines.ENGINES)
def test_every_engine_places_models_and_reads_back_where_they_are(
    llama: Install, tmp_path: Path, name: str
) -> None:
    with engines.make(name, llama, timeout_s=120) as engine:
        for offload in (replace(NOWHERE, target=replace(NOWHERE.target, devices=())), NOWHERE):
            both = embedded.measured(engine, embedded.spec(Role.DRAFTING, offload), tmp_path / "both")
            (target,), (drafter,) = (model.placement for model in values.models_of(both))
            assert (target.device, drafter.device) == ("CPU", "CPU")
            assert [model.gpu_bytes for model in values.models_of(both)] == [0, 0]
            for one, weights, cache in ((target, 28.19, 8.0), (drafter, 1.70, 0.75)):
                assert one.model_bytes == round(weights * (1 << 20))
                assert one.kv_bytes == round(cache * (1 << 20))
                assert one.compute_bytes
        alone = embedded.measured(engine, embedded.spec(Role.DRAFTER, NOWHERE), tmp_path / "alone")
        assert values.models_of(alone)[0].placement[0].model_bytes == drafter.model_bytes
        assert alone.drafter is None


def test_the_programs_of_2024_tell_it_too(legacy: Install, tmp_path: Path) -> None:
    with engines.make("binary", legacy, timeout_s=120) as engine:
        measured = engine.measure(embedded.spec(Role.DRAFTING, Offload().on_processor), tmp_path / "l")
    (target,), (drafter,) = (model.placement for model in values.models_of(measured.sample))
    assert (target.device, drafter.device) == ("CPU", "CPU")
    assert target.model_bytes == round(28.19 * (1 << 20))
    assert drafter.model_bytes == round(1.70 * (1 << 20))


@pytest.mark.parametrize("name", ["binary", "server", "inprocess"])
def test_a_device_that_is_not_there_is_a_typed_failure(llama: Install, tmp_path: Path, name: str) -> None:
    offload = replace(NOWHERE, target=replace(NOWHERE.target, devices=("CUDA7",)))
    with engines.make(name, llama, timeout_s=120) as engine:
        measured = engine.measure(embedded.spec(Role.TARGET, offload), tmp_path / "log")
    assert measured.sample.status is Status.FAILED
    assert "CUDA7" in (measured.error or "")
