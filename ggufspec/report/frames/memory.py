"""Memory plans as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ggufspec.modelfiles.memory import Footprint, MemoryPlan
from ggufspec.report.frames.tables import frame
from ggufspec.units import format_bytes

_DEVICES = ("target_gpu", "target_host", "drafter_gpu", "drafter_host")
_PARTS = ("weights", "cache", "compute")
MEMORY_COLUMNS = (
    *("n_gpu_layers", "n_gpu_layers_draft", "gpu_bytes", "host_bytes", "fits"),
    *(f"{device}_{part}_bytes" for device in _DEVICES for part in _PARTS),
)


def memory_trade(plans: Sequence[MemoryPlan], budget_bytes: int | None) -> pd.DataFrame:
    """Return one row per plan, in bytes; ``fits`` is null without a budget."""
    rows = [
        {
            "n_gpu_layers": plan.target.gpu_layers,
            "n_gpu_layers_draft": plan.draft and plan.draft.gpu_layers,
            "gpu_bytes": plan.gpu_bytes,
            "host_bytes": plan.host_bytes,
            "fits": None if budget_bytes is None else plan.gpu_bytes <= budget_bytes,
            **{
                f"{device}_{part}_bytes": getattr(footprint, part)
                for device, footprint in _footprints(plan).items()
                for part in _PARTS
            },
        }
        for plan in plans
    ]
    return frame(rows, MEMORY_COLUMNS)


def memory_overview(plans: Sequence[MemoryPlan], budget_bytes: int | None) -> pd.DataFrame:
    """Return one row per plan for people to read."""
    rows = [
        {
            "target layers on the GPU": plan.target.gpu_layers,
            "GPU": format_bytes(plan.gpu_bytes),
            "host": format_bytes(plan.host_bytes),
            "fits": "" if budget_bytes is None else "yes" if plan.gpu_bytes <= budget_bytes else "no",
        }
        for plan in plans
    ]
    columns = ("target layers on the GPU", "GPU", "host", *(("fits",) if budget_bytes is not None else ()))
    return frame(rows, columns)


def memory_devices(plan: MemoryPlan) -> pd.DataFrame:
    """Return one row per model and device of a plan, for people to read."""
    rows = [
        {
            "memory of": device.replace("_", " on the ").replace("gpu", "GPU"),
            **{part: format_bytes(getattr(footprint, part)) for part in _PARTS},
            "total": format_bytes(footprint.total),
        }
        for device, footprint in _footprints(plan).items()
    ]
    return frame(rows, ("memory of", *_PARTS, "total"))


def _footprints(plan: MemoryPlan) -> dict[str, Footprint]:
    models = {"target": plan.target, "drafter": plan.draft}
    return {
        f"{name}_{device}": getattr(model, device)
        for name, model in models.items()
        if model is not None
        for device in ("gpu", "host")
    }
