"""Named doubts about measurements, each with advice. A doubt never changes a number."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ggufspec.domain import Layers, Machine, Offload, RunResult, RunSpec, Status


class Doubt(StrEnum):
    """Why a number may not mean what it seems to mean."""

    GPU_LESS_BUILD = "gpu-less-build"
    DRAFTER_ON_CPU = "drafter-on-cpu"
    DRAFTING_INACTIVE = "drafting-inactive"
    THREADS_ABOVE_FREE_CORES = "threads-above-free-cores"
    BUSY_MACHINE = "busy-machine"
    FEW_REPEATS = "few-repeats"
    TEXT_DIFFERS = "text-differs"
    SUMMARY_RETRIED = "summary-retried"
    RUNS_FAILED = "runs-failed"


ADVICE = {
    Doubt.GPU_LESS_BUILD: "layers were asked for on a GPU, but this llama.cpp has none: "
    "build with `ggufspec build --backend cuda` (or metal, vulkan, hip), or drop --ngl",
    Doubt.DRAFTER_ON_CPU: "the target uses the GPU and the drafter does not: add `--ngld all`",
    Doubt.DRAFTING_INACTIVE: "nothing was drafted, so this is no measurement of drafting: "
    "see the run's log for why the drafter was not used",
    Doubt.THREADS_ABOVE_FREE_CORES: "llama.cpp collapses when it has more threads than free cores: "
    "lower --threads, or stop what else is running",
    Doubt.BUSY_MACHINE: "other programs used the processor during runs: stop them and measure again",
    Doubt.FEW_REPEATS: "one repeat has no spread, so no interval: use --repeats 3 or more",
    Doubt.TEXT_DIFFERS: "drafting wrote another text than the target alone: near-ties decided by batch size "
    "are normal, a difference from the first tokens on is not",
    Doubt.SUMMARY_RETRIED: "llama.cpp lost the end of a log and the run was repeated: nothing to do",
    Doubt.RUNS_FAILED: "some runs failed and are missing from the means: see their status with "
    "`ggufspec show --runs`",
}

_BUSY_CORES = 0.2  # a fifth of a core: about ten times what an idle desktop uses


def before(machine: Machine, *, threads: int, busy_cores: float) -> tuple[Doubt, ...]:
    """Return the doubts that stand before anything was measured."""
    found = []
    if threads > machine.cores - round(busy_cores):
        found.append(Doubt.THREADS_ABOVE_FREE_CORES)
    if busy_cores > _BUSY_CORES:
        found.append(Doubt.BUSY_MACHINE)
    return tuple(found)


def of_run(run: RunResult, *, gpu: bool | None) -> tuple[Doubt, ...]:
    """Return the doubts about one finished run.

    Args:
        run: the run.
        gpu: whether the build can use a GPU; None where nobody knows and the log must tell.
    """
    found = []
    if run.spec.drafting is not None and run.sample.status is Status.DRAFTING_INACTIVE:
        found.append(Doubt.DRAFTING_INACTIVE)
    wanted = requested(run.spec)
    on_cpu_only = bool(run.sample.devices) and all(name.startswith("CPU") for name in run.sample.devices)
    if any(_wants_gpu(layers) for layers in wanted) and (gpu is False or (gpu is None and on_cpu_only)):
        found.append(Doubt.GPU_LESS_BUILD)
    elif run.spec.drafting is not None and gpu is not False and drafter_left_behind(run.spec.offload):
        found.append(Doubt.DRAFTER_ON_CPU)
    if run.others_cores is not None and run.others_cores > _BUSY_CORES:
        found.append(Doubt.BUSY_MACHINE)
    if run.text_identical is False:
        found.append(Doubt.TEXT_DIFFERS)
    if run.attempts > 1:
        found.append(Doubt.SUMMARY_RETRIED)
    return tuple(found)


def requested(spec: RunSpec) -> tuple[Layers, ...]:
    """Return the GPU layers that a run asked for, of each model that it loads."""
    match spec.role:
        case "target":
            return (spec.offload.target_layers,)
        case "drafter":
            return (spec.offload.draft_layers,)
        case _:
            return (spec.offload.target_layers, spec.offload.draft_layers)


def advise(doubts: Iterable[Doubt]) -> dict[str, str]:
    """Return each doubt's advice by its name, in order, once."""
    return {doubt.value: ADVICE[doubt] for doubt in dict.fromkeys(doubts)}


def drafter_left_behind(offload: Offload) -> bool:
    """Whether the target goes to a GPU and the drafter is told to stay on the processor."""
    return _wants_gpu(offload.target_layers) and offload.draft_layers == 0


def _wants_gpu(layers: Layers) -> bool:
    return layers == "all" or (isinstance(layers, int) and layers > 0)
