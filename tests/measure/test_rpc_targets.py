"""A target that is spread over workers: command lines, an axis, logs, and what goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines, paths, results, tuning
from ggufspec.analysis import warnings
from ggufspec.domain import (
    Method,
    ModelRun,
    Offload,
    Program,
    Prompt,
    Role,
    RpcWorker,
    RunSpec,
    Sample,
    Status,
    offloading,
)
from ggufspec.engines.engine import failure_error
from ggufspec.errors import GgufspecError, NoInstallError, OutOfMemoryError, WorkerError
from ggufspec.forecast import planning
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.llama.logs import parsing
from ggufspec.llama.logs.offload import with_placement
from ggufspec.measure import prepare_session
from ggufspec.measure.sweep import Sweep
from ggufspec.options import AutoOptions, BenchOptions
from ggufspec.report import frames
from ggufspec.report.text import formats, provenance
from tests.support import fake_server, fakes, rpc_workers, scripted, values
from tests.support.fakes import recorded_install
from tests.support.rpc_workers import MIB

A, B = "10.0.0.1:50052", "my_host:50053"
SPREAD = Offload(target=ModelRun(layers="all"), drafter=ModelRun(layers="all"), rpc=(A, B))


def spread(*devices: str, drafter: tuple[str, ...] = (), **more: Any) -> Offload:
    """``SPREAD`` on some devices."""
    target = replace(SPREAD.target, devices=devices)
    return replace(SPREAD, target=target, drafter=replace(SPREAD.drafter, devices=drafter), **more)


def argv(
    offload: Offload, *, role: Role = Role.DRAFTING, backend: str = "cpu", devices: tuple[str, ...] = ()
) -> str:
    draft = 3 if role is Role.DRAFTING else None
    spec = replace(values.spec(role, draft=draft, path=Path("T")), offload=offload)
    program = Program.SIMPLE if role is Role.DRAFTING else Program.PLAIN
    install = replace(recorded_install("0.3.36", backend), devices=devices)
    return " ".join(commands.argv(spec, install, program=program))


# Command lines ---------------------------------------------------------------------------------------------


def test_workers_are_named_before_any_device_where_they_are_needed() -> None:
    words = argv(spread("RPC0", "CUDA0", drafter=("CUDA0",)), backend="cuda").split()
    assert words[words.index("--rpc") + 1] == f"{A},{B}"
    assert words.index("--rpc") < words.index("--device") < words.index("--spec-draft-device")
    assert "--rpc" not in argv(SPREAD, role=Role.DRAFTER)  # which needs none
    assert "--rpc" in argv(spread(drafter=("RPC0",)), role=Role.DRAFTER)
    assert "--rpc" in argv(SPREAD, role=Role.TARGET)


@pytest.mark.parametrize(
    ("offload", "listed", "drafter"),
    [
        (SPREAD, (), "none"),
        (SPREAD, ("CUDA0: NVIDIA A", "CUDA1: NVIDIA B"), "CUDA0,CUDA1"),
        (spread("RPC0", "CUDA1"), ("CUDA0: NVIDIA A", "CUDA1: NVIDIA B"), "CUDA1"),
        (spread("RPC0", "RPC1"), ("CUDA0: NVIDIA A",), "CUDA0"),
        (spread(drafter=("RPC1",)), ("CUDA0: NVIDIA A",), "RPC1"),
    ],
)
def test_the_drafter_stays_here_by_default(offload: Offload, listed: tuple[str, ...], drafter: str) -> None:
    words = argv(offload, backend="cuda" if listed else "cpu", devices=listed).split()
    assert words[words.index("--spec-draft-device") + 1] == drafter


def test_a_build_without_a_gpu_offloads_to_workers() -> None:
    assert "-ngl 0" in argv(Offload())
    target, _, drafter = argv(Offload(rpc=(A,))).partition("--model-draft")
    assert "-ngl auto" in target
    assert "--fit on" in argv(Offload(rpc=(A,)))
    assert "-ngld 0" in drafter


def test_a_build_without_rpc_is_refused_before_anything_runs() -> None:
    spec = replace(values.spec(Role.TARGET, path=Path("T")), offload=SPREAD)
    install = replace(recorded_install("0.3.36"), has_rpc=False)
    with pytest.raises(NoInstallError, match="built without RPC") as refused:
        commands.argv(spec, install, program=Program.PLAIN)
    assert "`ggufspec build` makes one" in (refused.value.hint or "")


# An axis ---------------------------------------------------------------------------------------------------


def sweep(*rpcs: tuple[str, ...], offload: Offload | None = None) -> Sweep:
    return scripted.sweep(
        draft_sizes=(3,),
        methods=(Method.DRAFT_MODEL, Method.NGRAM_SIMPLE),
        offload=offload or Offload(),
        rpcs=rpcs,
    )


@pytest.mark.parametrize("draft_devices", [(), ("RPC0",)])
def test_each_value_has_a_baseline_of_its_own(draft_devices: tuple[str, ...]) -> None:
    blocks = sweep((), (A,), (A, B), offload=Offload(drafter=ModelRun(devices=draft_devices))).blocks()
    assert [block.arms[0].offload.rpc for block in blocks] == [(), (A,), (A, B)]
    for block in blocks:
        drafting = [arm for arm in block.arms if arm.role is Role.DRAFTING]
        assert {arm.offload.rpc for arm in drafting} == {block.arms[0].offload.rpc}
        assert {arm.baseline.key for arm in drafting} == {block.arms[0].key}
    arms = {arm.key: arm.role for block in blocks for arm in block.arms}
    assert Counter(arms.values()) == blocks.n_arms


@pytest.fixture
def llama(llama: Path) -> Path:
    fakes.program(llama / "llama-tokenize", "echo '[1, 2, 3]'\n")
    fakes.program(llama / "ggml-rpc-server", "")
    return llama


@pytest.fixture
def two() -> Iterator[tuple[str, str]]:
    with ExitStack() as stack:
        first, second = (stack.enter_context(rpc_workers.worker()) for _ in range(2))
        yield first.address, second.address


def prepared(**asked: object) -> tuple[list[RunSpec], tuple[str, ...]]:
    session = prepare_session(BenchOptions(pair="demo", prompt=("Hi",), ngl=1, **asked))
    return [arm for block in session.suite.blocks for arm in block.arms], session.notes


@pytest.mark.usefixtures("llama")
def test_a_bench_measures_the_network_to_its_workers_first(two: tuple[str, str]) -> None:
    arms, notes = prepared(rpc=("none", ",".join(two)))
    assert {arm.offload.rpc for arm in arms if arm.role is Role.DRAFTING} == {(), two}
    for address in two:
        (note,) = (note for note in notes if note.startswith(f"worker {address}: RPC 7.0.0, 1 device"))
        assert "7.81 GiB, of which 5.86 GiB are free, round trip" in note
        assert "/s" in note


@pytest.mark.usefixtures("llama")
def test_devices_of_workers_can_be_named(two: tuple[str, str]) -> None:
    arms, _ = prepared(rpc=",".join(two), devices=("RPC1",))
    assert arms[0].offload == Offload(target=ModelRun(layers=1, devices=("RPC1",)), rpc=two)
    with pytest.raises(GgufspecError, match="there is no device RPC2"):
        prepared(rpc=",".join(two), devices=("RPC2",))
    with pytest.raises(GgufspecError, match="there is no device RPC0"):
        prepared(rpc=("none", ",".join(two)), devices=("RPC0",))


@pytest.mark.usefixtures("llama")
def test_the_memory_of_workers_counts() -> None:
    with rpc_workers.worker(devices=((1000, 1000),)) as fake, pytest.raises(OutOfMemoryError) as refused:
        prepared(rpc=fake.address)
    assert fake.address in refused.value.message


@pytest.mark.usefixtures("llama")
def test_a_useless_worker_stops_a_bench_only_if_nothing_else_is_measured(two: tuple[str, str]) -> None:
    gone = rpc_workers.nobody()
    with pytest.raises(WorkerError, match=f"cannot connect to the worker {gone}"):
        prepared(rpc=(gone, f"{two[0]},{gone}"))
    arms, notes = prepared(rpc=("none", gone))
    assert {arm.offload.rpc for arm in arms} == {(), (gone,)}
    assert any(gone in note and note.endswith("its runs will fail") for note in notes)


def test_a_plan_counts_memory_of_workers(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installs, "detect_gpus", tuple)
    with rpc_workers.worker(devices=((40 * MIB, 64 * MIB),)) as fake:
        planned = planning.plan("demo", rpc=fake.address, reserve=0)
    assert [(gpu.name, gpu.free_bytes) for gpu in planned.gpus] == [(fake.address, 40 * MIB)]
    assert 0 < planned.best.target.gpu_layers < planned.best.target.max_layers
    assert planned.shown.draft.gpu_layers == 0


def test_a_plan_with_memory_that_is_given_asks_no_worker() -> None:
    planned = planning.plan("demo", rpc=rpc_workers.nobody(), vram="100M", reserve=0)
    assert planned.gpus == ()
    with pytest.raises(WorkerError, match="cannot connect"):
        planning.plan("demo", rpc=rpc_workers.nobody())


def test_auto_asks_its_workers_before_it_looks_for_drafters(llama: Path) -> None:
    fake_server.program(llama / "llama-server")
    target = str(paths.models_dir() / "demo" / "target.gguf")
    asked = AutoOptions(target=target, rpc=rpc_workers.nobody(), offline=True)
    with pytest.raises(WorkerError, match="cannot connect to the worker"):
        tuning.find_sources(asked)


def test_only_one_llama_uses_a_worker(llama: Path, tmp_path: Path, two: tuple[str, str]) -> None:
    other = fakes.install(tmp_path / "other")
    with pytest.raises(GgufspecError, match="one program at a time"):
        prepared(rpc=two[0], llama=(llama, other))


def test_what_workers_said_before_the_first_run_is_stored_with_a_bench() -> None:
    worker = RpcWorker(
        address=A,
        version="7.0.0",
        free_bytes=(1 << 30,),
        total_bytes=(2 << 30,),
        rtt_s=0.002,
        bytes_per_s=1e9,
    )
    stored = results.create(replace(values.META, engine="server", workers=(worker,)))
    results.close(stored)
    loaded = results.load(stored.meta.id)
    assert loaded.meta.workers == (worker,)
    assert "round trip 2 ms" in provenance.page(loaded)


def test_tables_name_the_workers_of_an_arm() -> None:
    plain = values.run()
    spread = replace(plain, spec=replace(plain.spec, offload=SPREAD))
    rows = formats.records(frames.runs(values.bench(plain, replace(spread, log="other"))))
    assert {row["settings"] for row in rows} == {None, f"--rpc {A},{B}"}


# Logs ------------------------------------------------------------------------------------------------------

# as llama.cpp's sources spell it (0.3.36): a CPU build with two workers; the drafter is on this machine.
# Devices are counted over all workers, in the names of buffers those of each worker.
LOG = f"""\
llama_prepare_model_devices: using device RPC0 ({A}) (unknown id) - 6000 MiB free
llama_prepare_model_devices: using device RPC1 ({B}) (unknown id) - 100 MiB free
load_tensors: offloading output layer to GPU
load_tensors: offloaded 9/9 layers to GPU
load_tensors:          CPU model buffer size =    20.00 MiB
load_tensors: RPC0[{A}] model buffer size =   150.00 MiB
load_tensors: RPC0[{B}] model buffer size =   120.00 MiB
llama_kv_cache: RPC0[{A}] KV buffer size =     4.00 MiB
llama_kv_cache: RPC0[{B}] KV buffer size =     4.00 MiB
sched_reserve: RPC0[{A}] compute buffer size =    30.00 MiB
sched_reserve: RPC0[{B}] compute buffer size =    10.00 MiB
sched_reserve:        CPU compute buffer size =     2.00 MiB
load_tensors:   CPU_Mapped model buffer size =    60.00 MiB
llama_kv_cache:        CPU KV buffer size =     1.00 MiB
"""


def test_a_log_says_what_went_to_which_worker() -> None:
    sample = with_placement(Sample(status=Status.OK), LOG.encode())
    on = {part.device: part for part in values.models_of(sample)[0].placement}
    assert [*on] == ["CPU", f"RPC0[{A}]", f"RPC0[{B}]"]
    assert on[f"RPC0[{A}]"].total_bytes == 184 * MIB
    assert on[f"RPC0[{A}]"].spilled_bytes == 0
    assert on[f"RPC0[{B}]"].spilled_bytes == (134 - 101) * MIB
    assert [part.device for part in values.models_of(sample)[1].placement] == ["CPU"]


def test_free_memory_is_that_of_the_worker_where_it_has_one_device() -> None:
    second = f"llama_prepare_model_devices: using device RPC2 ({B}) (unknown id) - 100 MiB free\n"
    sample = with_placement(Sample(status=Status.OK), (second + LOG).encode())
    on = {part.device: part for part in values.models_of(sample)[0].placement}
    assert on[f"RPC0[{A}]"].spilled_bytes == 0
    assert on[f"RPC0[{B}]"].spilled_bytes is None


@pytest.mark.parametrize(
    ("offload", "expected"),
    [
        (SPREAD.with_layers(drafter="auto"), {"spilled"}),
        (spread("RPC0", "RPC1"), {"spilled"}),
        (spread(rpc=(A, B, "c:1")), {"spilled", "device-unused"}),
        (spread(rpc=(A, B, "c:1"), tensor_split=(1, 1, 0)), {"spilled"}),
    ],
)
def test_a_worker_without_weights_is_named(offload: Offload, expected: set[str]) -> None:
    run = values.run(Role.DRAFTING, draft=3)
    sample = with_placement(run.sample, LOG.encode())
    run = replace(run, spec=replace(run.spec, offload=offload), sample=sample)
    assert {*offloading.shortfalls(run, gpu=False)} == expected


# What goes wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"/src/ggml-rpc.cpp:547: Failed to connect to {A}", Status.WORKER_UNREACHABLE),
        (
            f"RPC server version mismatch: 6.0.0\n/x.cpp:550: RPC handshake failed for {A}",
            Status.WORKER_MISMATCH,
        ),
        ("/x.cpp:566: Remote RPC server crashed or returned malformed response", Status.WORKER_LOST),
        (f"llama_model_load: error loading model: unable to allocate RPC0[{A}] buffer", Status.OUT_OF_MEMORY),
    ],
)
def test_what_a_log_says_of_a_worker_is_a_status(line: str, status: Status) -> None:
    diagnosis = parsing.diagnose(f"{line}\n")
    assert diagnosis.status is status
    assert "SERVER" not in diagnosis.line
    error = failure_error(status, diagnosis.line)
    assert isinstance(error, OutOfMemoryError if status is Status.OUT_OF_MEMORY else WorkerError)
    assert error.hint
    run = replace(values.run(), sample=Sample(status=status))
    assert warnings.outcome(run) is status
    assert results.load(values.bench(run).meta.id).runs[0].sample.status is status


@pytest.mark.parametrize("name", ["binary-simple", "server"])
def test_a_run_without_its_worker_starts_no_program(llama: Path, tmp_path: Path, name: str) -> None:
    started = tmp_path / "started"
    fakes.program(llama / "llama-completion", f"touch {started}\n")
    fakes.program(llama / "llama-server", f"touch {started}\n", help_from="llama-server")
    install = installs.find_install(llama)
    spec = replace(
        values.spec(path=Path("T")),
        prompt=Prompt(id="p", text="p"),
        offload=Offload(rpc=(rpc_workers.nobody(),)),
    )
    with engines.make(name, install, timeout_s=5) as engine:
        measurement = engine.measure(spec, tmp_path / "log")
    assert measurement.sample.status is Status.WORKER_UNREACHABLE
    assert "cannot connect to the worker" in (measurement.error or "")
    assert not started.exists()
