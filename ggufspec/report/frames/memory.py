"""Memory plans as tables."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ggufspec.forecast import planning
from ggufspec.modelfiles.memory import Footprint, MemoryPlan, ModelMemory
from ggufspec.report.frames.tables import frame
from ggufspec.report.schemas.rows import PlanRow
from ggufspec.units import format_bytes, format_rate

_PARTS = ("weights", "cache", "compute")
_ESTIMATED = "estimated tokens/s"
MEMORY_COLUMNS = PlanRow.columns()


def memory_trade(planned: planning.Planned) -> pd.DataFrame:
    """Return one row per number of the target's layers, see ``PlanRow``."""
    rows = [
        PlanRow(
            requested_ngl=plan.target.gpu_layers,
            requested_ngld=plan.draft.gpu_layers if plan.draft else None,
            gpu_bytes=plan.gpu_bytes,
            host_bytes=plan.host_bytes,
            fits=planned.fits(plan),
            roofline_tps=planned.rate(plan),
            **{
                f"{device}_{part}_bytes": getattr(footprint, part)
                for device, footprint in _footprints(plan).items()
                for part in _PARTS
            },
        )
        for plan in planned.plans
    ]
    return frame([row.cells() for row in rows], MEMORY_COLUMNS)


def memory_overview(planned: planning.Planned, most: int) -> pd.DataFrame:
    """Return some ``most`` plans for people to read, that for the requested number of layers among them."""
    plans = planned.plans
    steps = max(1, len(plans) // most)
    shown = [
        plan for number, plan in enumerate(plans) if number % steps == 0 or plan in (planned.shown, plans[-1])
    ]
    rows = [
        {
            "target layers on the GPU": plan.target.gpu_layers,
            "GPU": format_bytes(plan.gpu_bytes),
            "host": format_bytes(plan.host_bytes),
            "fits": "yes" if planned.fits(plan) else "no",
            _ESTIMATED: "" if (rate := planned.rate(plan)) is None else format_rate(rate),
        }
        for plan in shown
    ]
    columns = ["target layers on the GPU", "GPU", "host"]
    columns += ["fits"] if planned.vram_bytes else []
    columns += [_ESTIMATED] if planned.rates else []
    return frame(rows, columns)


def memory_devices(plan: MemoryPlan) -> pd.DataFrame:
    """Return one row per model and device of a plan, for people to read; each of several GPUs has its own."""
    models = {"target": plan.target, **({"drafter": plan.draft} if plan.draft else {})}
    devices = {
        f"{name} on {device}": footprint
        for name, model in models.items()
        for device, footprint in (*_gpus(model), ("the host", model.host))
    }
    rows = [
        {
            "memory of": name,
            **{part: format_bytes(getattr(footprint, part)) for part in _PARTS},
            "total": format_bytes(footprint.total),
        }
        for name, footprint in devices.items()
    ]
    return frame(rows, ("memory of", *_PARTS, "total"))


def _gpus(model: ModelMemory) -> Iterator[tuple[str, Footprint]]:
    """Yield the GPUs of a model with their names."""
    if len(model.gpus) <= 1:
        yield "the GPU", model.gpu
        return
    for number, footprint in enumerate(model.gpus):
        yield f"GPU {number}", footprint


def _footprints(plan: MemoryPlan) -> dict[str, Footprint]:
    models = {"target": plan.target, "drafter": plan.draft}
    return {
        f"{name}_{device}": getattr(model, device)
        for name, model in models.items()
        if model is not None
        for device in ("gpu", "host")
    }
