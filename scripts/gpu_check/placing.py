"""Layers one by one, and a mixture's experts on the GPU or the host at every γ."""

from __future__ import annotations

from ggufspec import paths
from ggufspec.analysis import arms
from ggufspec.domain import Role
from ggufspec.modelfiles import gguf
from ggufspec.options import SweepOptions
from gpu_check.benches import Bench, table
from gpu_check.presets import Placement
from gpu_check.steps import Section


def count_layers(bench: Bench, seconds: float) -> Section:
    """Ask for every number of layers of the embedded target, and read how many llama.cpp offloaded."""
    asked = bench.demo("binary", (3,), repeats=1, warmup=0).to(SweepOptions)
    blocks = gguf.validate_file(paths.models_dir() / "demo" / "target.gguf").n_layers
    wanted = range(blocks + 2) if bench.gpu else range(1)  # the output counts as one more
    found, _ = bench.run(
        asked.replace(ngl=tuple(wanted), n_predict=8, prompt=("Story:",), suite=None, per_category=None),
        seconds,
        roles={Role.TARGET},
    )
    rows = [
        {
            "layers asked": arm.spec.offload.target.layers,
            "on the GPU": None if arm.layers is None else arm.layers.offloaded,
            "of": None if arm.layers is None else arm.layers.total,
            "status": arm.status,
        }
        for arm in arms.group(found)
    ]
    wrong = [row for row in rows if row["on the GPU"] != row["layers asked"]]
    missing = len(wanted) - len(rows)
    fault = f"{len(wrong)} numbers of layers are not what was asked for" if wrong else ""
    return Section(
        rows=rows, benches=[found.meta.id], fault=fault or (f"{missing} were not reached" if missing else "")
    )


def measure_experts(bench: Bench, placement: Placement, seconds: float) -> Section:
    """Measure a mixture at every γ, its experts placed so, at the notebook's acceptance, simulated."""
    asked = bench.of(placement, bench.preset.sizes, synthetic=True, n_predict=48)
    found, wanted = bench.run(asked, seconds, roles={Role.TARGET, Role.DRAFTING})
    return table(found, wanted, prompts=bench.preset.prompts)
