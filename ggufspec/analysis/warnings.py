"""Named warnings about measurements, each with advice. A warning never changes a number."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from ggufspec.domain import (
    Conditions,
    Machine,
    Role,
    RunOutcome,
    RunResult,
    Sample,
    Status,
    TextVerdict,
    offloading,
)
from ggufspec.machine import SLOWDOWNS


class Doubt(StrEnum):
    """A reason why a number may be misleading."""

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
    TARGET_VARIES = "target-varies"
    SAMPLED_OTHERWISE = "sampled-otherwise"
    SYNTHETIC = "synthetic-acceptance"
    SUMMARY_RETRIED = "summary-retried"
    RUNS_FAILED = "runs-failed"
    DAMAGED = "damaged"


ADVICE = {
    Doubt.GPU_LESS_BUILD: "layers were requested on a GPU, but this build of llama.cpp cannot use one: "
    "build with `ggufspec build --backend cuda` (or metal, vulkan, hip), or drop --ngl",
    Doubt.DRAFTER_ON_CPU: "the target runs on the GPU and the drafter on the CPU: add `--ngld all`",
    Doubt.FEWER_LAYERS: "fewer layers were offloaded than requested: compare n_gpu_layers and "
    "offloaded_layers in `ggufspec show --runs`, and request as many as were offloaded",
    Doubt.SPILLED: "part of the data for the GPU is in host memory, which is slower: "
    "offload fewer layers (--ngl), or use a smaller --ctx, --kv-type or quantization",
    Doubt.DEVICE_UNUSED: "a device named with --device holds no weights: see placement in "
    "`ggufspec show --runs`, and give the device a proportion with --tensor-split or leave it out",
    Doubt.DRAFTING_INACTIVE: "nothing was drafted, so drafting was not measured: "
    "the run's log says why the drafter was not used",
    Doubt.MODELS_SWAPPED: "the drafter is larger than the target, so drafting cannot make it faster: "
    "were -m (the target) and -md (the drafter) swapped?",
    Doubt.THREADS_ABOVE_FREE_CORES: "llama.cpp becomes many times slower with more threads than free cores, "
    "because its threads wait for each other: lower --threads, or stop other programs",
    Doubt.BUSY_MACHINE: "other programs used the processor during runs: stop them and measure again",
    Doubt.FEW_REPEATS: "one repeat cannot show how much runs vary on this machine: use --repeats 3 or more",
    Doubt.SWAPPING: "memory was swapped during runs: use a smaller --ctx or model, or stop other programs",
    Doubt.GPU_THROTTLED: "a GPU lowered its clocks because of heat or its power supply: improve the cooling "
    "and measure again; `ggufspec show --runs --columns log,gpu_throttled,gpu_c` lists the runs",
    Doubt.DRIFT: "the machine became faster or slower during the bench (heat, power limits, other "
    "programs): speed-ups are paired and stay valid, but let it cool and measure tokens/s again",
    Doubt.UNSTABLE: "repeats of the same run differ more than usual: stop other programs, fix the clock "
    "frequency, or use more --repeats",
    Doubt.OUTLIERS: "single runs differ widely from the others of their kind; medians ignore them, but "
    "check the reason with `ggufspec show --runs`",
    Doubt.MEMORY_TIGHT: "the models barely fit into memory, so the disk may limit the speed",
    Doubt.IMPLAUSIBLE: "figures contradict each other or the clock, so these runs are left out of the means",
    Doubt.TEXT_DIFFERS: "the text with drafting differs from the target's own, and no near-tie explains it: "
    "the speed-up is not a fair comparison",
    Doubt.NOT_JUDGED: "texts differ, and the target could not be asked whether a near-tie explains it: fix "
    "the cause and continue the bench with `--resume`",
    Doubt.NEAR_TIES: "the text with drafting differs from the target's own where two tokens are almost "
    "equally likely; batches of other sizes round differently, which is normal",
    Doubt.TARGET_VARIES: "the target alone does not repeat its own text, and no near-tie explains it, so "
    "the comparison of texts says little: check the memory and the llama.cpp build",
    Doubt.SAMPLED_OTHERWISE: "sampled texts do not follow the target's distribution, so drafting does not "
    "write what the target alone would write: report it to llama.cpp, or use another build",
    Doubt.SYNTHETIC: "acceptance was simulated, not decided by the target: speeds hold for that acceptance, "
    "texts have no meaning; leave out --synthetic-accept to measure the drafter itself",
    Doubt.SUMMARY_RETRIED: "llama.cpp truncated a log; the run was repeated",
    Doubt.RUNS_FAILED: "some runs failed and are missing from the means: `ggufspec show --runs` has "
    "their status",
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
"""The outcome of a run that ended well but has such a warning, the most serious first."""

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
    """Return the doubt about a run's text; it is known only after the target's first text was written.

    The verdict on the first difference and the audit of the complete text must both explain it by near-ties,
    as far as they are known.
    """
    if run.text_identical is not False:
        return None
    verdict = None if run.difference is None else run.difference.verdict
    divergent = None if run.audit is None else run.audit.divergent
    is_explained = verdict is TextVerdict.NEAR_TIE or (verdict is None and divergent == 0)
    if run.spec.role is Role.TARGET:
        return None if is_explained else Doubt.TARGET_VARIES
    return Doubt.NEAR_TIES if is_explained and not divergent else Doubt.TEXT_DIFFERS


def of_judgement(run: RunResult) -> tuple[Doubt, ...]:
    """Return the doubts about a text that was compared with the target's own."""
    is_audited = run.audit is not None and run.audit.divergent is not None
    unjudged = not is_audited and run.difference is not None and run.difference.unjudged is not None
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
