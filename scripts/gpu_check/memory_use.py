"""The memory plan against what was used: NVML's on a GPU, the process's own on a CPU."""

from __future__ import annotations

from collections.abc import Iterable

from ggufspec.domain import Role, RunResult
from ggufspec.llama.install import installs
from ggufspec.modelfiles import gguf, memory
from ggufspec.results import ResultSet
from gpu_check.benches import Bench
from gpu_check.presets import Placement
from gpu_check.steps import Bar, NotRunError, Row, Section

_LIMIT, _LIMIT_MIB = 3.0, 200.0  # a plan may be off by one or the other
_MIB = 1 << 20
_SIZE, _TOKENS = 3, 24  # long enough for NVML to be read several times


def measure(bench: Bench, placement: Placement, seconds: float, small: ResultSet | None) -> Section:
    """Run a pair once, placed so, and compare.

    Args:
        bench: what the benches share.
        placement: the pair, where it runs and what its caches are.
        seconds: what this may take.
        small: on a GPU, a bench of the embedded pair by the server: it takes little beside what CUDA takes
            for itself. The plan leaves that to its reserve, and it is taken off what NVML saw.
    """
    asked = bench.of(placement, (_SIZE,), n_predict=_TOKENS)
    found, _ = bench.run(asked, seconds, roles={Role.DRAFTING})
    run = next((run for run in found.runs if run.error is None), None)
    if run is None:
        said = found.runs[0].error if found.runs else "no time was left"
        return Section(benches=[found.meta.id], fault=f"it did not run: {said}")
    planned = plan_of(bench, run)
    if small is None:
        row = compared(planned.host_bytes, run.peak_rss_bytes, 0)
        notes = ["On a CPU this is the process's peak, the program and copies of weights included: no bar."]
        return Section(rows=[{"placed": placement.name, **row}], notes=notes, benches=[found.meta.id])
    used, taken = used_bytes(found.runs), used_bytes(small.runs)
    if used is None or taken is None:
        raise NotRunError("NVML told no memory: is the package nvidia-ml-py there?")
    own = max(0, taken - plan_of(bench, next(run for run in small.runs if _drafts(run))).gpu_bytes)
    row = compared(planned.gpu_bytes, used, own)
    return Section(
        rows=[{"placed": placement.name, "CUDA's own (MiB)": round(own / _MIB), **row}],
        benches=[found.meta.id],
        bars=[bar(planned.gpu_bytes, used - own)],
    )


def bar(planned: int, used: int) -> Bar:
    """Return the bar of a plan: in per cent for a large one, in MiB where 3 % of it are less than 200 MiB."""
    off = used - planned
    if planned * _LIMIT / 100 > _LIMIT_MIB * _MIB:
        return Bar(name="memory plan against NVML", value=round(100 * off / planned, 2), limit=_LIMIT)
    return Bar(name="memory plan against NVML", value=round(off / _MIB, 1), limit=_LIMIT_MIB, unit="MiB")


def used_bytes(runs: Iterable[RunResult]) -> int | None:
    """Return the most GPU memory that drafting runs took, above what was in use before any run."""
    states = [(run, run.conditions) for run in runs if run.conditions is not None]
    before = [state.gpu_used_bytes for _, state in states if state.gpu_used_bytes is not None]
    peaks = [state.gpu_peak_bytes for run, state in states if _drafts(run) and state.gpu_peak_bytes]
    return max(peaks) - min(before) if peaks and before else None


def compared(planned: int, used: int | None, own: int) -> Row:
    """Return a row; ``own`` is what the driver and CUDA take for themselves."""
    net = None if used is None else used - own
    return {
        "planned (MiB)": round(planned / _MIB),
        "used (MiB)": None if net is None else round(net / _MIB),
        "difference": None if net is None else f"{net / planned - 1:+.1%}",
    }


def plan_of(bench: Bench, run: RunResult) -> memory.MemoryPlan:
    """Return what the plan says of a drafting run."""
    spec, drafter = run.spec, run.spec.drafter
    assert spec.pair.target.path is not None, "the models here are files"
    layout = memory.layout_for(installs.find_install(bench.llama).build_number)
    return memory.plan(
        gguf.validate_file(spec.pair.target.path),
        gguf.validate_file(drafter.path) if drafter is not None and drafter.path is not None else None,
        spec.offload if bench.gpu else spec.offload.on_processor,
        memory.settings_for(spec, layout),
    )


def _drafts(run: RunResult) -> bool:
    return run.spec.role is Role.DRAFTING
