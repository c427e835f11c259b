"""The memory plan against what was used: NVML's on a GPU, the process's own on a CPU."""

from __future__ import annotations

from collections.abc import Iterable

from ggufspec.domain import Offload, Role, RunResult
from ggufspec.llama.install import installs
from ggufspec.modelfiles import gguf, memory
from ggufspec.results import ResultSet
from gpu_check.benches import Bench, Measured
from gpu_check.presets import Pairing
from gpu_check.steps import Bar, NotRunError, Row, Section

_LIMIT = 5.0  # per cent
_MIB = 1 << 20


def on_gpu(bench: Bench, measured: Measured, small: ResultSet) -> Section:
    """Compare at every number of layers that was measured, with the largest γ that was reached.

    Args:
        bench: what the benches share.
        measured: the sweep of a random pair.
        small: a bench of the embedded pair by the server: it takes little beside what CUDA takes for itself.
    """
    taken = used_bytes(small.runs)
    if taken is None:
        raise NotRunError("NVML told no memory: is the package nvidia-ml-py there?")
    own = max(0, taken - _planned(bench, _longest(small)))
    rows: list[Row] = []
    for layers, results in measured.by_layers.items():
        drafting = [run for run in results.runs if _drafts(run)]
        if layers == 0 or not drafting:
            continue
        run = _longest(results)
        row = compared(_planned(bench, run), used_bytes(results.runs), own)
        rows.append({"layers": layers, "γ": run.spec.drafting and run.spec.drafting.n_max, **row})
    return Section(
        rows=rows,
        notes=[
            f"CUDA and the driver take {own / _MIB:.0f} MiB for themselves, by the embedded pair.",
            "The plan leaves that to its reserve, so it is taken off what NVML saw.",
        ],
        bars=[Bar(name="memory plan against NVML, worst", value=worst(rows), limit=_LIMIT)],
    )


def on_cpu(bench: Bench, pairing: Pairing, seconds: float) -> Section:
    """Compare a drafting program's peak with the plan for the host."""
    asked = bench.random(pairing, 0, (max(bench.preset.sizes),), engine="binary-simple")
    found, _ = bench.run(asked, seconds, drafter_alone=False)
    peaks = [run.peak_rss_bytes for run in found.runs if _drafts(run) and run.peak_rss_bytes]
    row = compared(_planned(bench, _longest(found)), max(peaks, default=None), 0)
    return Section(
        rows=[{"layers": 0, "γ": max(bench.preset.sizes), **row}],
        notes=["On a CPU this is the process's peak, the program and copies of weights included: no bar."],
        benches=[found.meta.id],
    )


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


def worst(rows: Iterable[Row]) -> float | None:
    """Return the difference that is farthest from zero, in per cent."""
    known = [float(str(row["difference"]).rstrip("%")) for row in rows if row["difference"] is not None]
    return max(known, key=abs, default=None)


def _planned(bench: Bench, run: RunResult) -> int:
    """Return what the plan says of a drafting run, on the device in question."""
    spec = run.spec
    assert spec.drafting is not None
    assert spec.pair.target.path is not None
    assert spec.pair.draft is not None
    assert spec.pair.draft.path is not None
    settings = memory.MemorySettings(
        context=spec.context,
        n_draft=spec.drafting.n_max,
        layout=memory.layout_for(installs.find_install(bench.llama).build_number),
    )
    plan = memory.plan(
        gguf.validate_file(spec.pair.target.path),
        gguf.validate_file(spec.pair.draft.path),
        spec.offload if bench.gpu else Offload().on_processor,
        settings,
    )
    return plan.gpu_bytes if bench.gpu else plan.host_bytes


def _longest(results: ResultSet) -> RunResult:
    drafting = [run for run in results.runs if _drafts(run)]
    return max(drafting, key=lambda run: run.spec.drafting.n_max if run.spec.drafting else 0)


def _drafts(run: RunResult) -> bool:
    return run.spec.role is Role.DRAFTING
