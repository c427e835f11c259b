"""Named doubts about measurements, each with advice. A doubt never changes a number."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ggufspec.domain import (
    Conditions,
    Machine,
    RunOutcome,
    RunResult,
    Sample,
    Status,
    TextVerdict,
    offloading,
)
from ggufspec.machine import SLOWDOWNS


class Doubt(StrEnum):
    """Why a number may not mean what it seems to mean."""

    GPU_LESS_BUILD = "gpu-less-build"
    DRAFTER_ON_CPU = "drafter-on-cpu"
    FEWER_LAYERS = "fewer-layers"
    SPILLED = "spilled"
    DEVICE_UNUSED = "device-unused"
    DRAFTING_INACTIVE = "drafting-inactive"
    MODELS_SWAPPED = "models-swapped"
    THREADS_ABOVE_FREE_CORES = "threads-above-free-cores"
    BUSY_MACHINE = "busy-machine"
    FEW_REPEATS = "few-repeats"
    SWAPPING = "swapping"
    GPU_THROTTLED = "gpu-throttled"
    DRIFT = "drift"
    UNSTABLE = "unstable"
    OUTLIERS = "outliers"
    MEMORY_TIGHT = "memory-tight"
    IMPLAUSIBLE = "implausible"
    TEXT_DIFFERS = "text-differs"
    NOT_JUDGED = "texts-not-judged"
    NEAR_TIES = "near-ties"
    SYNTHETIC = "synthetic-acceptance"
    SUMMARY_RETRIED = "summary-retried"
    RUNS_FAILED = "runs-failed"
    DAMAGED = "damaged"


ADVICE = {
    Doubt.GPU_LESS_BUILD: "layers were asked for on a GPU, and this llama.cpp uses none: "
    "build with `ggufspec build --backend cuda` (or metal, vulkan, hip), or drop --ngl",
    Doubt.DRAFTER_ON_CPU: "the target uses the GPU and the drafter does not: add `--ngld all`",
    Doubt.FEWER_LAYERS: "fewer layers went to the GPU than were asked for, so this is the speed of another "
    "offload: see n_gpu_layers and offloaded_layers in `ggufspec show --runs`, and ask for as many",
    Doubt.SPILLED: "a part of what belongs on the GPU is in the host's memory, behind the bus: "
    "ask for fewer layers (--ngl), or use a smaller --ctx, --kv-type or quantization",
    Doubt.DEVICE_UNUSED: "a device that --device names holds no weights: see placement in "
    "`ggufspec show --runs`, and give it a share with --tensor-split or leave it out",
    Doubt.DRAFTING_INACTIVE: "nothing was drafted, so this is no measurement of drafting: "
    "see the run's log for why the drafter was not used",
    Doubt.MODELS_SWAPPED: "the drafter is larger than the target, which drafting cannot make faster: "
    "were -m (the target) and -md (the drafter) swapped?",
    Doubt.THREADS_ABOVE_FREE_CORES: "llama.cpp becomes many times slower when it has more threads than free "
    "cores, because its threads wait for each other: lower --threads, or stop other programs",
    Doubt.BUSY_MACHINE: "other programs used the processor during runs: stop them and measure again",
    Doubt.FEW_REPEATS: "one repeat does not tell how far this machine's runs spread: use --repeats 3 or more",
    Doubt.SWAPPING: "memory was swapped during runs: use a smaller --ctx or model, or stop other programs",
    Doubt.GPU_THROTTLED: "a GPU lowered its clocks to protect itself from heat or from a weak power supply: "
    "cool it better and measure again; `ggufspec show --runs --columns log,gpu_throttled,gpu_c` says when",
    Doubt.DRIFT: "the machine became faster or slower in the course of the bench (heat, power limits, "
    "other work): ratios are paired and hold, but let it cool and measure tokens/s again",
    Doubt.UNSTABLE: "repeats of the same run differ by more than usual: stop other programs, keep the clocks "
    "steady, or use more --repeats",
    Doubt.OUTLIERS: "single runs lie far from the others of their kind; medians ignore them, but look why: "
    "`ggufspec show --runs`",
    Doubt.MEMORY_TIGHT: "the models hardly fit into memory, so speed may be that of the disk",
    Doubt.IMPLAUSIBLE: "figures contradict each other or the clock, so such runs are left out of the means",
    Doubt.TEXT_DIFFERS: "drafting wrote another text than the target alone, and no near-tie explains it: "
    "its speed is no fair comparison",
    Doubt.NOT_JUDGED: "the target could not be asked whether a near-tie explains why texts differ: remove "
    "the cause and resume the bench with `--resume`",
    Doubt.NEAR_TIES: "drafting's text parts from the target's where two tokens are as good as equally "
    "likely; batches of other sizes round differently, which is normal",
    Doubt.SYNTHETIC: "dice decided what was accepted, not the target: speeds hold for that acceptance, texts "
    "mean nothing; leave --synthetic-accept out to measure what the drafter is worth",
    Doubt.SUMMARY_RETRIED: "llama.cpp lost the end of a log and the run was repeated: nothing to do",
    Doubt.RUNS_FAILED: "some runs failed and are missing from the means: see their status with "
    "`ggufspec show --runs`",
    Doubt.DAMAGED: "the files of this bench are damaged, and some of its runs may be missing: measure again",
}

_GRAVE = {
    Doubt.IMPLAUSIBLE: RunOutcome.IMPLAUSIBLE,
    Doubt.GPU_LESS_BUILD: RunOutcome.GPU_LESS_BUILD,
    Doubt.DRAFTER_ON_CPU: RunOutcome.DRAFTER_ON_CPU,
    Doubt.SPILLED: RunOutcome.SPILLED,
    Doubt.FEWER_LAYERS: RunOutcome.FEWER_LAYERS,
    Doubt.DEVICE_UNUSED: RunOutcome.DEVICE_UNUSED,
    Doubt.TEXT_DIFFERS: RunOutcome.TEXT_DIFFERS,
    Doubt.BUSY_MACHINE: RunOutcome.DISTURBED,
}
"""What a doubt makes of a run that ended well, the gravest first."""

_BUSY_CORES = 0.2  # a fifth of a core: about ten times what an idle desktop uses
_SWAPPED_BYTES = 16 << 20  # more than a desktop's background moves now and then


def before(machine: Machine, *, threads: int, busy_cores: float) -> tuple[Doubt, ...]:
    """Return the doubts that stand before anything was measured."""
    found = []
    if _crowded(machine.cores, threads=threads, busy_cores=busy_cores):
        found.append(Doubt.THREADS_ABOVE_FREE_CORES)
    if busy_cores > _BUSY_CORES:
        found.append(Doubt.BUSY_MACHINE)
    return tuple(found)


def _crowded(cores: int, *, threads: int, busy_cores: float) -> bool:
    """Whether more threads are to compute than other programs leave cores; one thread waits for nobody."""
    return threads > max(1, cores - round(busy_cores))


def was_busy(conditions: Conditions) -> bool:
    """Whether others used so much of the processor that a measurement of that time cannot be trusted."""
    return (conditions.others_cores or 0.0) > _BUSY_CORES


def of_run(run: RunResult, *, gpu: bool | None, cores: int | None = None) -> tuple[Doubt, ...]:
    """Return the doubts about one finished run.

    Args:
        run: the run.
        gpu: whether the build can use a GPU; None where nobody knows and the log must tell.
        cores: that this process may use; None where nobody knows.
    """
    found = []
    if run.spec.drafting is not None and run.sample.status is Status.DRAFTING_INACTIVE:
        found.append(Doubt.DRAFTING_INACTIVE)
    found += map(Doubt, offloading.shortfalls(run, gpu=gpu))
    others = (run.conditions.others_cores if run.conditions else None) or 0.0
    if cores is not None and _crowded(cores, threads=run.spec.threads, busy_cores=others):
        found.append(Doubt.THREADS_ABOVE_FREE_CORES)
    if run.conditions is not None and was_busy(run.conditions):
        found.append(Doubt.BUSY_MACHINE)
    if run.conditions is not None and (run.conditions.swapped_bytes or 0) > _SWAPPED_BYTES:
        found.append(Doubt.SWAPPING)
    if run.conditions is not None and not SLOWDOWNS.isdisjoint(run.conditions.gpu_throttled or ()):
        found.append(Doubt.GPU_THROTTLED)
    if run.sample.status is Status.OK and not is_plausible(run.sample, run.program_s):
        found.append(Doubt.IMPLAUSIBLE)
    if run.spec.drafting is not None and run.spec.drafting.synthetic is not None:
        found.append(Doubt.SYNTHETIC)
    if run.attempts > 1:
        found.append(Doubt.SUMMARY_RETRIED)
    return tuple(found)


def of_text(run: RunResult) -> Doubt | None:
    """Return the doubt about a drafting run's text; it is known only after the target's own was written."""
    if run.text_identical is not False:
        return None
    near_tie = run.difference is not None and run.difference.verdict is TextVerdict.NEAR_TIE
    return Doubt.NEAR_TIES if near_tie else Doubt.TEXT_DIFFERS


def of_judgement(run: RunResult) -> tuple[Doubt, ...]:
    """Return the doubts about a text that was compared with the target's own."""
    unjudged = run.difference is not None and run.difference.unjudged is not None
    return tuple(filter(None, (of_text(run), Doubt.NOT_JUDGED if unjudged else None)))


def outcome(run: RunResult) -> RunOutcome:
    """Return what a run is worth: how it ended, or the gravest doubt about one that ended well."""
    if run.sample.status is not Status.OK:
        return RunOutcome(run.sample.status.value)
    found = {*run.doubts, of_text(run)}
    return next((outcome for doubt, outcome in _GRAVE.items() if doubt in found), RunOutcome.OK)


def is_plausible(sample: Sample, program_s: float) -> bool:
    """Whether a sample's figures agree with each other and with the clock.

    Args:
        sample: a run that ended well.
        program_s: how long the program ran, in seconds, by our own clock.
    """
    if not sample.decode_tps or (sample.gen_s or 0.0) > program_s * 1.05 + 0.1:
        return False
    drafted, accepted, rounds = sample.n_drafted, sample.n_accepted, sample.n_rounds
    if drafted is not None and accepted is not None and not 0 <= accepted <= drafted:
        return False
    if drafted is not None and rounds is not None and sample.n_draft and drafted > rounds * sample.n_draft:
        return False
    parts = (sample.draft_s or 0.0) + (sample.verify_s or 0.0)
    return parts <= (sample.gen_s or 0.0) * 1.1 + 0.01


def warning_advice(doubts: Iterable[Doubt]) -> dict[str, str]:
    """Return each doubt's advice by its name, in order, once."""
    return {doubt.value: ADVICE[doubt] for doubt in dict.fromkeys(doubts)}
