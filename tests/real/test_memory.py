"""Memory plans against the buffers that llama.cpp itself reports, on a CPU."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, paths, proc
from ggufspec.domain import CacheTypes, ModelRun, Offload, Program, Role, Status
from ggufspec.llama.install.environment import flush_variables, program_environment
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import validate_file
from tests.support import embedded, models, shapes, values

_BUFFER = re.compile(r"(?:model|CPU|KV|compute|output) +buffer size = +([\d.]+) MiB")
_TOLERANCE = 0.03
_DRAFT = 3


@pytest.mark.parametrize("shape", shapes.NAMES)
@pytest.mark.parametrize(
    ("context", "kv_type", "flash_attention"),
    [(512, "f16", True), (4096, "q8_0", True), (2048, "f16", False)],
)
def test_plans_agree_with_llama_cpp(
    llama: Install, tmp_path: Path, shape: str, context: int, kv_type: str, flash_attention: bool
) -> None:
    model = models.write_model(tmp_path / "m.gguf", *shapes.small(shape))
    settings = memory.MemorySettings(
        context=context,
        caches=CacheTypes.parse(kv_type),
        n_draft=_DRAFT,
        layout=replace(memory.TODAY, flash_attention=flash_attention),
    )
    _compare(llama, model, model, settings)


@pytest.mark.parametrize(
    ("build", "layout"),
    [("llama", memory.TODAY), ("legacy", memory.layout_for(2697))],  # of April 2024
)
def test_the_embedded_pair_takes_what_was_planned(
    request: pytest.FixtureRequest, build: str, layout: memory.Layout
) -> None:
    demo = paths.models_dir() / "demo"
    settings = memory.MemorySettings(context=1024, n_draft=_DRAFT, layout=layout)
    _compare(request.getfixturevalue(build), demo / "target.gguf", demo / "drafter.gguf", settings)


def _compare(install: Install, target: Path, draft: Path, settings: memory.MemorySettings) -> None:
    cards = validate_file(target), validate_file(draft)
    plan = memory.plan(*cards, Offload().on_processor, settings)
    assert plan.gpu_bytes == 0
    assert plan.host_bytes / (1 << 20) == pytest.approx(
        _reported_mib(install, target, draft, settings), rel=_TOLERANCE
    )


def _reported_mib(install: Install, target: Path, draft: Path, settings: memory.MemorySettings) -> float:
    """Add up the buffers of both models; without rearranged copies of weights, which depend on the CPU."""
    executable = install.executable(Program.TREE)
    options = executable.options
    argv = [str(executable.path), "-m", str(target), "-md", str(draft), "-c", str(settings.context)]
    argv += ["-n", "1", "-p", "a", "--temp", "0", "-t", "1"]
    argv += [options.first("--spec-draft-n-max", "--draft") or "--draft", str(_DRAFT)]
    if "--fit" in options:  # today's
        argv += ["-lv", "4", "--fit", "off", "--no-repack", "--load-mode", "mmap"]
        kv_type = str(settings.caches)
        argv += [word for flag in ("-ctk", "-ctv", "-ctkd", "-ctvd") for word in (flag, kv_type)]
        argv += ["-fa", "on" if settings.layout.flash_attention else "off"]
    with tempfile.TemporaryDirectory() as scratch:
        environment = program_environment(Path(scratch)) | flush_variables(install.library)
        completed, _, err = proc.capture(argv, env=environment, cwd=Path(scratch), timeout_s=120)
    assert completed.returncode == 0, err[-500:]
    sizes = [float(size) for size in _BUFFER.findall(err)]
    assert len(sizes) >= 8
    return sum(sizes)


# Where real programs of every kind say that the embedded pair went, and that they take what places it


NOWHERE = Offload(
    target=ModelRun(layers=0, devices=("none",), cpu_moe=2),
    drafter=ModelRun(layers=0, cpu_moe="all"),
    fit=False,
    tensor_split=(3.0, 1.0),
)


@pytest.mark.parametrize(
    ("build", "name"), [*(("llama", name) for name in engines.ENGINES), ("legacy", "binary")]
)
def test_each_engine_places_models_and_says_where(
    request: pytest.FixtureRequest, tmp_path: Path, build: str, name: str
) -> None:
    is_old = build == "legacy"  # has no options for places
    with engines.make(name, request.getfixturevalue(build), timeout_s=120) as engine:
        without_devices = replace(NOWHERE, target=replace(NOWHERE.target, devices=()))
        for offload in (Offload().on_processor,) if is_old else (without_devices, NOWHERE):
            both = embedded.measured(engine, embedded.spec(Role.DRAFTING, offload), tmp_path / "both")
            (target,), (drafter,) = (model.placement for model in values.models_of(both))
            assert (target.device, drafter.device) == ("CPU", "CPU")
            assert [model.gpu_bytes for model in values.models_of(both)] == [0, 0]
            for one, weights, cache in ((target, 28.19, 8.0), (drafter, 1.70, 0.75)):
                assert one.model_bytes == round(weights * (1 << 20))
                assert is_old or one.kv_bytes == round(cache * (1 << 20))
                assert is_old or one.compute_bytes
        if not is_old:
            alone = embedded.measured(engine, embedded.spec(Role.DRAFTER, NOWHERE), tmp_path / "alone")
            assert values.models_of(alone)[0].placement[0].model_bytes == drafter.model_bytes
            assert alone.drafter is None


@pytest.mark.parametrize("name", ["binary", "server", "inprocess"])
def test_a_device_that_is_not_there_is_a_typed_failure(llama: Install, tmp_path: Path, name: str) -> None:
    offload = replace(NOWHERE, target=replace(NOWHERE.target, devices=("CUDA7",)))
    with engines.make(name, llama, timeout_s=120) as engine:
        measured = engine.measure(embedded.spec(Role.TARGET, offload), tmp_path / "log")
    assert measured.sample.status is Status.FAILED
    assert "CUDA7" in (measured.error or "")
