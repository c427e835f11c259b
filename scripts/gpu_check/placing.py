"""Layers one by one, and a mixture's experts on the GPU or the host: at every γ, and against forecasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import ggufspec
from ggufspec import machine, paths
from ggufspec.analysis import arms
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Role
from ggufspec.forecast import costs
from ggufspec.llama.install import installs
from ggufspec.modelfiles import gguf
from ggufspec.options import SweepOptions
from gpu_check.benches import Bench, gain, median_tps, table
from gpu_check.presets import ALPHA, Placement
from gpu_check.steps import Row, Section

_SIZE = 3  # γ of the forecasts
_PLACES = 4  # numbers of layers whose experts are on the host, besides none


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


def compare_places(bench: Bench, placement: Placement, seconds: float) -> Section:
    """Measure a mixture at some places of its experts, and at those that llama.cpp chooses, beside forecasts.

    Without a GPU there is one place, and nothing is fitted.
    """
    count = gguf.read_card(bench.models.path(placement.target)).n_layers
    kept = tuple(range(0, count + 1, max(1, count // _PLACES))) if bench.gpu else (count,)
    asked = bench.of(placement, (_SIZE,), synthetic=True, n_predict=48)
    wanted = {"forecast": asked.replace(cpu_moe=kept)}
    if bench.gpu:
        wanted["--fit"] = asked.replace(ngl=("auto",), cpu_moe=None, fit="on")
    roles, ids = {Role.TARGET, Role.DRAFTING}, []
    rows: list[Row] = []
    for places in wanted.values():
        found, _ = bench.run(places, seconds / len(wanted), roles=roles)
        ids.append(found.meta.id)
        rows += _beside_forecasts(bench, placement, arms.group(found))
    return Section(
        rows=rows,
        benches=ids,
        notes=["Forecasts: `whatif`, from headers, the GPU's data sheet and the host's memory as read here."],
    )


def _beside_forecasts(bench: Bench, placement: Placement, found: Iterable[Arm]) -> Iterator[Row]:
    """Yield what each drafting arm reached and what was forecast for its places, where these are known."""
    host = f"{machine.read_bandwidth(machine.usable_cores()) / 1e9:.1f}G"
    gpu = next(
        filter(None, (costs.match_device(gpu.name) for gpu in installs.find_install(bench.llama).gpus)), host
    )
    for arm in (arm for arm in found if arm.role is Role.DRAFTING):
        target, measured, told = arm.spec.offload.target, median_tps(arm), None
        if not arm.spec.offload.fit:
            told = ggufspec.whatif(
                target=bench.models.path(placement.target),
                draft_model=bench.models.path(placement.drafter),
                machine=gpu,
                host=host,
                ngl=target.layers,
                ngld=arm.spec.offload.drafter.layers,
                cpu_moe=target.cpu_moe,
                draft=_SIZE,
                alpha=ALPHA,
                ctx=256,
            ).best
        times, off = gain(arm), told and measured and told.tokens_per_s / measured - 1
        yield {
            "experts on the host": "as --fit has it" if told is None else f"{target.cpu_moe} layers",
            "tokens/s": None if measured is None else round(measured, 1),
            "forecast": None if told is None else round(told.tokens_per_s, 1),
            "off by": None if off is None else f"{off:+.0%}",
            "speed-up": None if times is None else f"{times:.2f}×",
            "forecast speed-up": None if told is None else f"{told.speedup:.2f}×",
            "status": arm.status,
        }
