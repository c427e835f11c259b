"""Where models shall go, and where a log says that they went."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ggufspec import results
from ggufspec.analysis import warnings
from ggufspec.analysis.warnings import MeasurementWarning
from ggufspec.domain import (
    Experts,
    Layers,
    ModelRun,
    Offload,
    Placement,
    Program,
    Role,
    RunResult,
    SplitMode,
)
from ggufspec.engines.library import commandline
from ggufspec.engines.library.messages import ModelLoad, WorkerRun
from ggufspec.engines.server import load_of
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import commands
from ggufspec.llama.logs import offload as logs_offload, parsing
from ggufspec.llama.logs.offload import find_models
from ggufspec.report import frames
from ggufspec.report.text import formats, overview
from tests.support import fakes, shell, values
from tests.support.fakes import recorded_install

MIB, GIB = 1 << 20, 1 << 30
ASKED = Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all"))
EVERYWHERE = Offload(
    target=ModelRun(layers=45, devices=("CUDA0", "CUDA1"), cpu_moe=12),
    drafter=ModelRun(layers="all", devices=("CUDA1",), cpu_moe="all"),
    tensor_split=(3.0, 1.0),
    split_mode=SplitMode.ROW,
    main_gpu=1,
)


def drafting(offload: Offload = ASKED) -> RunResult:
    run = values.run(Role.DRAFTING, draft=3)
    return replace(run, spec=replace(run.spec, offload=offload))


# What is asked for -----------------------------------------------------------------------------------------


def test_each_model_keeps_its_own_part() -> None:
    shared = Offload(tensor_split=(3.0, 1.0), split_mode=SplitMode.ROW, main_gpu=1)
    target = replace(shared, target=ModelRun(layers=45, devices=("CUDA0", "CUDA1"), cpu_moe=12))
    assert EVERYWHERE.target_alone == target
    alone = replace(shared, drafter=ModelRun(layers="all", devices=("CUDA1",), cpu_moe="all"))
    assert EVERYWHERE.drafter_alone == alone
    said = replace(shared, target=ModelRun(layers="all", devices=("CUDA1",), cpu_moe="all"))
    assert EVERYWHERE.drafter_as_target == alone.drafter_as_target == said
    follows = replace(EVERYWHERE, drafter=replace(EVERYWHERE.drafter, devices=()))
    assert follows.drafter_as_target.target.devices == ("CUDA0", "CUDA1")
    spec = replace(values.spec(Role.DRAFTER), offload=EVERYWHERE)
    assert load_of(spec).offload == EVERYWHERE.drafter_as_target
    assert load_of(replace(spec, role=Role.TARGET)).offload == EVERYWHERE.target_alone


def placing(words: tuple[str, ...]) -> str:
    """The flags of a command that say where models go, each with its value."""
    flags = re.compile(
        r"--?(?:fit|device(?:-draft)?|spec-draft-device|tensor-split|split-mode|main-gpu|.*cpu-moe.*)$"
    )
    return " ".join(
        flag if value.startswith("-") else f"{flag} {value}"
        for flag, value in pairwise((*words, "-"))
        if flags.fullmatch(flag)
    )


TARGET = "--device CUDA0,CUDA1 --tensor-split 3,1 --split-mode row --main-gpu 1 --n-cpu-moe 12"
ERAS = {
    ("0.3.16", Program.PLAIN): TARGET,
    ("0.3.16", Program.TREE): f"{TARGET} --device-draft CUDA1 --cpu-moe-draft",
    ("0.3.16", Program.SIMPLE): f"{TARGET} --device-draft CUDA1 --cpu-moe-draft",
    ("0.3.16", Program.SERVER): f"{TARGET} --device-draft CUDA1 --cpu-moe-draft",
    ("0.3.20", Program.TREE): f"{TARGET} --device-draft CUDA1 --cpu-moe-draft --fit off",
    ("0.3.23", Program.SIMPLE): f"{TARGET} --spec-draft-device CUDA1 --spec-draft-cpu-moe --fit off",
    ("0.3.36", Program.PLAIN): f"{TARGET} --fit off",
    ("0.3.36", Program.TREE): f"{TARGET} --spec-draft-device CUDA1 --spec-draft-cpu-moe --fit off",
    ("0.3.36", Program.SERVER): f"{TARGET} --spec-draft-device CUDA1 --spec-draft-cpu-moe --fit off",
}


def argv(build: str, program: Program, offload: Offload) -> tuple[str, ...]:
    role, draft = (Role.TARGET, None) if program is Program.PLAIN else (Role.DRAFTING, 3)
    spec = replace(values.spec(role, draft=draft, path=Path("T")), offload=offload)
    install = recorded_install(build, "cuda")
    if program is Program.SERVER:
        return commands.server_argv(spec, install, port=1, key_file=Path("K"), slots_dir=None)
    return commands.argv(spec, install, program=program)


@pytest.mark.parametrize(("build", "program"), ERAS, ids=str)
def test_devices_in_every_era_that_has_them(build: str, program: Program) -> None:
    offload = EVERYWHERE.target_alone if program is Program.PLAIN else EVERYWHERE
    offload = offload.with_layers(drafter="all")  # else it is the drafter that is fitted
    assert placing(argv(build, program, offload)) == ERAS[build, program]


def test_a_drafter_follows_its_targets_devices_in_every_era() -> None:
    offload = Offload(target=ModelRun(layers=45, devices=("CUDA1",)), drafter=ModelRun(layers=1))
    said = placing(argv("0.3.16", Program.TREE, offload))
    assert said == "--device CUDA1 --device-draft CUDA1"


def test_a_drafter_alone_is_placed_as_it_is_beside_the_target() -> None:
    spec = replace(values.spec(Role.DRAFTER, path=Path("T")), offload=EVERYWHERE)
    words = commands.argv(spec, recorded_install("0.3.36", "cuda"), program=Program.PLAIN)
    assert placing(words).startswith("--device CUDA1 --tensor-split 3,1 --split-mode row")
    assert " --cpu-moe" in placing(words)


@pytest.mark.parametrize(
    ("build", "offload", "flag"),
    [
        ("0.3.2", Offload(target=ModelRun(devices=("CUDA0",))), "--device"),
        ("0.2.63", Offload(tensor_split=(3, 1)), "--tensor-split"),  # a build for the processor hides it
        ("0.3.2", Offload(target=ModelRun(cpu_moe=3)), "--n-cpu-moe"),
        ("0.3.2", Offload(target=ModelRun(cpu_moe="all")), "--cpu-moe"),
        ("0.3.16", Offload(fit=True), "--fit"),
        ("0.2.90", Offload(main_gpu=0), "--main-gpu"),
    ],
)
def test_an_unlisted_flag_is_refused_in_one_line(build: str, offload: Offload, flag: str) -> None:
    with pytest.raises(GgufspecError, match=f"has no {flag}: its --help does not list it") as caught:
        argv(build, Program.PLAIN, offload)
    assert "\n" not in str(caught.value)
    assert f"leave {flag} out" in str(caught.value.hint)


@pytest.mark.parametrize(("mode", "build"), [(SplitMode.TENSOR, "0.3.16"), (SplitMode.TENSOR, "0.3.20")])
def test_a_way_to_split_that_came_later_is_refused(mode: SplitMode, build: str) -> None:
    with pytest.raises(GgufspecError, match="cannot split by tensor"):
        argv(build, Program.PLAIN, Offload(split_mode=mode))
    assert "--split-mode tensor" in placing(argv("0.3.36", Program.PLAIN, Offload(split_mode=mode)))


@pytest.mark.parametrize(
    ("build", "layers", "fit", "said"),
    [
        ("0.3.36", "auto", None, "--fit on"),
        ("0.3.36", "auto", False, "--fit off"),
        ("0.3.36", 45, None, "--fit on"),  # for the sake of a drafter that is not there: it touches no number
        ("0.3.36", 45, True, "--fit on"),
        ("0.3.16", "auto", False, ""),  # nothing that could be turned off
    ],
)
def test_fitting_is_said_once(build: str, layers: int, fit: bool | None, said: str) -> None:
    assert placing(argv(build, Program.PLAIN, Offload(target=ModelRun(layers=layers), fit=fit))) == said


@pytest.mark.parametrize("experts", [None, 4, "all"])
def test_a_worker_is_told_all_of_it(experts: Experts | None) -> None:
    load = ModelLoad(
        path="/m/t.gguf",
        context_tokens=777,
        rpc=("10.0.0.1:50052", "my_host:50053"),
        devices=("CUDA0", "CUDA1"),
        tensor_split=(3.0, 1.0),
        split_mode="row",
        main_gpu=1,
        cpu_moe=experts,
    )
    spec = values.spec(Role.DRAFTING, draft=3)
    run = WorkerRun(
        target=load,
        drafters=(replace(load, path="/m/d.gguf", rpc=(), devices=("CUDA1",), cpu_moe=2),),
        prompt="p",
        n_predict=9,
        threads=2,
        sampling=spec.sampling,
        drafting=spec.drafting,
    )
    library = Path("/lib")
    assert commandline.parse_command(commandline.format_command(run, library)) == (library, run)


# On the command line ---------------------------------------------------------------------------------------

BENCH = (
    *("bench", "--pair", "demo", "-p", "Once upon a time", "-n", "32", "-r", "1", "-t", "1"),
    *("--warmup", "0"),
)


@pytest.fixture
def llama(llama: Path) -> Path:
    return fakes.install(llama, **fakes.AT_ONCE, devices=fakes.TWO_GPUS)


def test_what_is_asked_for_reaches_every_program(llama: Path) -> None:
    words = (
        *("-dev", "CUDA0,CUDA1", "-ts", "3,1", "-sm", "layer", "-mg", "0", "--n-cpu-moe", "2"),
        *("--fit", "off"),
    )
    done = shell.done(*BENCH, "--dry-run", *words, "-cmoed")
    target, drafter, both = done.stdout.splitlines()
    shared = "--tensor-split 3,1 --split-mode layer --main-gpu 0"
    assert f"--fit off --device CUDA0,CUDA1 {shared} --n-cpu-moe 2 " in target
    assert f"--fit off --device CUDA0,CUDA1 {shared} --cpu-moe " in drafter
    assert f"--fit off --device CUDA0,CUDA1 {shared} --n-cpu-moe 2 " in both
    assert "--spec-draft-device CUDA0,CUDA1 --spec-draft-cpu-moe " in both


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-ts", "3,x"), "'3,x' is not a list of proportions; examples: 3,1"),
        (("-ts", "0,0"), "is not a list of proportions"),
        (("--device", "CUDA0,,CUDA1"), "is not a list of devices; examples: CUDA0"),
        (("--device", "none,CUDA0"), "is not a list of devices"),
        (("--n-cpu-moe", "some"), "'some' is not a number, a list or a range"),
        (("--fit", "maybe"), "maybe"),
    ],
)
def test_what_makes_no_sense_is_said_so(llama: Path, words: tuple[str, ...], said: str) -> None:
    done = shell.here(*BENCH, "--dry-run", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_fitting_needs_a_gpu(llama: Path) -> None:
    assert "--fit on " in shell.done(*BENCH, "--dry-run", "--fit", "on").stdout
    fakes.install(llama, **fakes.AT_ONCE)
    refused = shell.here(*BENCH, "--dry-run", "--fit", "on")
    assert refused.returncode == NoInstallError.exit_code
    assert "--fit on: the llama.cpp in" in refused.stderr
    assert "has no GPU to fit layers to" in refused.stderr


def test_a_missing_flag_ends_a_bench_before_it_begins(llama: Path) -> None:
    for name in ("llama-completion", "llama-speculative"):
        program = llama / name
        program.write_text(
            program.read_text().replace("0.3.36", "0.3.2").replace("llama-completion.txt", "llama-cli.txt")
        )
    done = shell.here(*BENCH, "--device", "CUDA0")
    assert done.returncode == 1
    assert done.stderr.count("has no --device") == 1
    assert not results.ids()


# What logs say ---------------------------------------------------------------------------------------------

LOGS = sorted((Path(__file__).parents[1] / "logs").glob("*/*.log"))
KINDS = {
    "": "model_bytes",
    "model": "model_bytes",
    "KV": "kv_bytes",
    "compute": "compute_bytes",
    "output": "output_bytes",
}


def plainly(text: str) -> tuple[Placement, ...]:
    """What a plain search finds in one model's part of a log; nothing spilled from GPUs and workers."""
    found: dict[str, dict[str, int]] = {}
    devices = r"CPU|CUDA\d|CUDA_Host|RPC\d\[\S+\]"
    lines = re.findall(rf"\w: +({devices})\w* +(\w*) ?buffer size = +([\d.]+) MiB", text)
    for device, kind, mib in lines:
        found.setdefault(device, {})[KINDS[kind]] = round(float(mib) * MIB)
    spilled = {device: None if device in {"CPU", "CUDA_Host"} else 0 for device in found}
    return tuple(
        Placement(device=device, spilled_bytes=spilled[device], **part) for device, part in found.items()
    )


def test_buffers_of_real_logs_are_those_that_a_plain_search_finds() -> None:
    """Models are told apart by the line that opens their file, which the reader does not look at."""
    for log in LOGS:
        text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
        # lines after this one do not say whose they are
        text = re.split(r"(?:main|llama_server): model loaded", text)[0]
        parts = [plainly(part) for part in text.split("llama_model_loader: loaded meta data")[1:]]
        found = [load.loaded.placement for load in find_models(log.read_bytes())]
        assert found == [part for part in parts if part], log


# as llama.cpp's sources spell them, of 0.2.63, 0.3.16 and 0.3.36
SPRING_2024 = """\
llm_load_tensors: offloading 45 repeating layers to GPU
llm_load_tensors: offloaded 45/81 layers to GPU
llm_load_tensors:        CPU buffer size = 29450.86 MiB
llm_load_tensors:      CUDA0 buffer size = 15872.00 MiB
llama_kv_cache_init:  CUDA_Host KV buffer size =   280.00 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   360.00 MiB
llama_new_context_with_model:  CUDA_Host  output buffer size =     0.49 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =  1104.00 MiB
llama_new_context_with_model:  CUDA_Host compute buffer size =    20.01 MiB
llm_load_tensors: offloading 32 repeating layers to GPU
llm_load_tensors: offloading non-repeating layers to GPU
llm_load_tensors: offloaded 33/33 layers to GPU
llm_load_tensors:        CPU buffer size =   215.27 MiB
llm_load_tensors:      CUDA0 buffer size =  4107.00 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   256.00 MiB
llama_new_context_with_model:  CUDA_Host  output buffer size =     0.49 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =   258.50 MiB
llama_new_context_with_model:  CUDA_Host compute buffer size =     9.01 MiB
"""
SUMMER_2025 = """\
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA A) - 20000 MiB free
llama_model_load_from_file_impl: using device CUDA1 (NVIDIA B) - 9000 MiB free
load_tensors: offloading 80 repeating layers to GPU
load_tensors: offloading output layer to GPU
load_tensors: offloaded 81/81 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   430.55 MiB
load_tensors:        CUDA0 model buffer size = 15000.00 MiB
load_tensors:        CUDA0 model buffer size =   500.00 MiB
load_tensors:        CUDA1 model buffer size =  8500.00 MiB
llama_context:  CUDA_Host  output buffer size =     0.49 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =   300.00 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =    50.00 MiB
llama_kv_cache_unified:      CUDA1 KV buffer size =   100.00 MiB
llama_context:      CUDA0 compute buffer size =   700.00 MiB
llama_context:      CUDA1 compute buffer size =   701.00 MiB
llama_context:  CUDA_Host compute buffer size =    20.01 MiB
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA A) - 3000 MiB free
load_tensors: offloaded 33/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   200.00 MiB
load_tensors:        CUDA0 model buffer size =  2000.00 MiB
llama_context:  CUDA_Host  output buffer size =     0.49 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =   128.00 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
llama_context:  CUDA_Host  output buffer size =     0.98 MiB
llama_kv_cache_unified:      CUDA0 KV buffer size =   256.00 MiB
llama_context:      CUDA0 compute buffer size =   259.00 MiB
"""
TODAY = """\
0.00.100.000 I llama_prepare_model_devices: using device CUDA0 (NVIDIA H200) (0000:0f:00.0) - 142000 MiB free
0.00.200.000 I load_tensors: offloaded 9/9 layers to GPU
0.00.200.001 I load_tensors:   CPU_Mapped model buffer size =     1.06 MiB
0.00.200.002 I load_tensors:        CUDA0 model buffer size =    27.13 MiB
0.00.300.000 I llama_context:  CUDA_Host  output buffer size =     0.01 MiB
0.00.300.001 I llama_kv_cache:      CUDA0 KV buffer size =     4.00 MiB
0.00.300.002 I llama_memory_recurrent:      CUDA0 RS buffer size =     1.00 MiB
0.00.300.003 I sched_reserve:      CUDA0 compute buffer size =     6.26 MiB
0.00.300.004 I sched_reserve:      CUDA0 compute buffer size =     7.00 MiB
"""


def at(log: str, device: str, model: int = 0) -> Placement:
    return next(each for each in find_models(log.encode())[model].loaded.placement if each.device == device)


def test_the_notebooks_offload_as_the_programs_of_its_time_say_it() -> None:
    target, drafter = find_models(SPRING_2024.encode())
    assert (target.offloaded_layers, target.total_layers) == (45, 81)
    assert (drafter.offloaded_layers, drafter.total_layers) == (33, 33)
    assert target.devices == drafter.devices == ("CPU", "CUDA0")
    assert at(SPRING_2024, "CUDA0") == Placement(
        device="CUDA0", model_bytes=15872 * MIB, kv_bytes=360 * MIB, compute_bytes=1104 * MIB
    )
    assert at(SPRING_2024, "CUDA_Host").kv_bytes == 280 * MIB
    assert at(SPRING_2024, "CUDA0", 1).total_bytes == round(4621.5 * MIB)
    assert [each.device for each in target.loaded.placement] == ["CPU", "CUDA0", "CUDA_Host"]


def test_several_devices_several_parts_and_a_second_context() -> None:
    assert at(SUMMER_2025, "CUDA0").model_bytes == 15500 * MIB  # of two files
    assert at(SUMMER_2025, "CUDA0").kv_bytes == 350 * MIB  # of two caches
    assert at(SUMMER_2025, "CUDA0").spilled_bytes == 0
    assert at(SUMMER_2025, "CUDA1").spilled_bytes == (9301 - 9001) * MIB  # what is free is rounded down
    assert at(SUMMER_2025, "CPU").spilled_bytes is None
    drafter = at(SUMMER_2025, "CUDA0", 1)  # its first context was freed
    assert (drafter.kv_bytes, drafter.compute_bytes) == (256 * MIB, 259 * MIB)
    assert at(SUMMER_2025, "CUDA_Host", 1).output_bytes == round(0.98 * MIB)


def test_todays_lines_have_prefixes_and_a_new_reservation_replaces_the_old_one() -> None:
    (load,) = find_models(TODAY.encode())
    assert load.offloaded_layers == 9
    placement = at(TODAY, "CUDA0")
    assert (placement.kv_bytes, placement.compute_bytes) == (5 * MIB, 7 * MIB)
    assert placement.spilled_bytes == 0


def test_a_sample_has_both_models() -> None:
    sample = parsing.parse(SPRING_2024 + fakes.DRAFTING_LOG.partition("\n\n\n")[2], program=Program.TREE)
    target, drafter = values.models_of(sample)
    assert target.gpu_bytes == 17336 * MIB
    assert drafter.gpu_bytes == round(4621.5 * MIB)
    assert (drafter.offloaded_layers, drafter.total_layers) == (33, 33)
    alone = parsing.parse(TODAY.encode() + fakes.PLAIN_LOG.partition("\n")[2].encode(), program=Program.PLAIN)
    assert alone.drafter is None


def test_what_a_server_reserves_at_a_request_is_nobodys() -> None:
    log = (Path(__file__).parents[1] / "logs/0.3.36/server-draft-eagle3.log").read_bytes()
    before, loaded, after = log.partition(b": model loaded")
    assert b"compute buffer size =     7.26 MiB" in after  # the target's, but no line says so
    assert find_models(log) == find_models(before + loaded)


def test_generated_text_is_no_buffer() -> None:
    assert find_models(b"Once: CUDA0 KV buffer size =     4.00 MiB\n") == ()


# What is doubtful about it ---------------------------------------------------------------------------------


def told(log: str, offload: Offload = ASKED) -> RunResult:
    """A drafting run whose log begins like this."""
    run = drafting(offload)
    return replace(run, sample=logs_offload.with_placement(run.sample, log.encode()))


FITS = SUMMER_2025.replace("CUDA1 (NVIDIA B) - 9000", "CUDA1 (NVIDIA B) - 9301")
EXPERTS = FITS.replace("CPU_Mapped model buffer size =   430.55", "CPU_Mapped model buffer size = 99430.55")
BOTH = ("CUDA0", "CUDA1")
THREE = (*BOTH, "CUDA2")
FEWER, SPILLED = MeasurementWarning.FEWER_LAYERS, MeasurementWarning.SPILLED
UNUSED = MeasurementWarning.DEVICE_UNUSED


def asked(
    layers: Layers = 45,
    devices: tuple[str, ...] = (),
    drafter: tuple[str, ...] = (),
    *,
    cpu_moe: Experts | None = None,
    **more: Any,
) -> Offload:
    """``ASKED`` with other layers and devices."""
    target = replace(ASKED.target, layers=layers, devices=devices, cpu_moe=cpu_moe)
    return replace(ASKED, target=target, drafter=replace(ASKED.drafter, devices=drafter), **more)


@pytest.mark.parametrize(
    ("log", "offload", "found"),
    [
        (SPRING_2024, asked(), None),
        (SPRING_2024, asked(46), FEWER),
        (SPRING_2024, asked("all"), FEWER),
        (SPRING_2024, asked("auto"), None),
        (SPRING_2024.replace("33/33", "20/33"), asked(), FEWER),  # the drafter's
        (SUMMER_2025, asked(99), SPILLED),
        (FITS, asked(99), None),
        (FITS.replace("3000 MiB free", "2000 MiB free"), asked(99), SPILLED),
        (EXPERTS, asked("all"), SPILLED),
        (EXPERTS, asked("all", cpu_moe="all"), None),  # as it was asked for
        (FITS, asked("all", BOTH, ("CUDA0",)), None),
        (FITS, asked("all", BOTH), UNUSED),  # by the drafter
        (FITS, asked(45, THREE, ("CUDA0",)), UNUSED),
        (FITS, asked(45, THREE, ("CUDA0",), tensor_split=(3.0, 1.0, 0.0)), None),
        (FITS, asked(45, THREE, ("CUDA0",), split_mode=SplitMode.ROW), None),
    ],
)
def test_layers_asked_for_and_used(log: str, offload: Offload, found: MeasurementWarning | None) -> None:
    assert warnings.of_run(told(log, offload), gpu=True) == ((found,) if found else ())


ON_CPU = SPRING_2024.replace("CUDA0", "  CPU")
DRAFTER_ON_CPU = (
    SPRING_2024[: SPRING_2024.index("llm_load_tensors: offloading 32")]
    + ON_CPU[ON_CPU.index("llm_load_tensors: offloading 32") :]
)


@pytest.mark.parametrize("gpu", [True, None])
def test_a_drafter_on_the_processor_shows_in_its_buffers(gpu: bool | None) -> None:
    """Whatever was asked for it, and whatever it claims."""
    assert warnings.of_run(told(DRAFTER_ON_CPU), gpu=gpu) == (MeasurementWarning.DRAFTER_ON_CPU,)
    assert warnings.of_run(told(SPRING_2024, ASKED.with_layers(drafter=0)), gpu=gpu) == ()


@pytest.mark.parametrize("gpu", [True, None, False])
def test_a_claim_without_a_single_buffer_on_a_gpu_is_none(gpu: bool | None) -> None:
    """Also of a build for a GPU that found none where it ran."""
    assert warnings.of_run(told(ON_CPU), gpu=gpu) == (MeasurementWarning.GPU_LESS_BUILD,)
    asked_nothing = Offload().on_processor
    assert warnings.of_run(told(ON_CPU, asked_nothing), gpu=gpu) == ()


def test_a_real_claim_is_seen_through() -> None:
    """The log of 0.3.16 says "offloaded 9/9 layers to GPU" on a machine that has none."""
    sample = parsing.parse((Path(__file__).parents[1] / "logs/0.3.16/plain-claimed-offload.log").read_bytes())
    target, _ = values.models_of(sample)
    assert (target.offloaded_layers, target.total_layers, target.gpu_bytes) == (9, 9, 0)
    run = values.run()
    run = replace(
        run, sample=sample, spec=replace(run.spec, offload=Offload(target=ModelRun(layers=9))), program_s=60
    )
    assert warnings.of_run(run, gpu=None) == (MeasurementWarning.GPU_LESS_BUILD,)


# What is stored and shown ----------------------------------------------------------------------------------


def test_a_row_says_what_was_asked_and_what_came_of_it() -> None:
    (row,) = formats.records(frames.runs(values.bench(told(SPRING_2024))))
    assert (row["requested_ngl"], row["actual_ngl"], row["total_layers"]) == ("45", 45, 81)
    assert row["gpu_bytes"] == 17336 * MIB
    assert row["placement"] == "28.8 GiB on CPU, 16.9 GiB on CUDA0, 300 MiB on CUDA_Host"
    assert row["draft_placement"] == "215 MiB on CPU, 4.51 GiB on CUDA0, 9.5 MiB on CUDA_Host"
    (row,) = formats.records(frames.runs(values.bench(values.run())))
    assert (row["gpu_bytes"], row["placement"], row["draft_placement"]) == (None, None, None)


def _line(*runs: RunResult) -> str | None:
    from ggufspec.analysis import arms

    return overview.offload(arms.group(values.bench(*runs)))


def test_the_summary_has_one_line_of_it_where_a_gpu_holds_anything() -> None:
    both = told(SPRING_2024)
    target = replace(
        values.run(),
        sample=replace(values.run().sample, devices=both.sample.devices, target=both.sample.target),
    )
    assert _line(target) == "offload: 45/81 layers, 16.9 GiB on CUDA0"
    assert _line(target, both) == (
        "offload: 45/81 layers, 16.9 GiB on CUDA0; drafter 33/33 layers, 4.51 GiB on CUDA0"
    )
    assert _line(values.run(), drafting()) is None
    assert _line(told(ON_CPU)) is None


def test_a_sweep_over_layers_stays_one_line() -> None:
    runs = []
    for layers in range(5):
        run = told(SPRING_2024.replace("45/81", f"{layers}/81"), Offload(target=ModelRun(layers=layers)))
        runs.append(replace(run, log=f"{layers}"))
    line = _line(*runs)
    assert "0/81 layers, 16.9 GiB on CUDA0 or 1/81 layers" in line
    assert " or 2 others; drafter 33/33 layers" in line
