"""A memory plan for people: by device, and by the number of layers on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggufspec.forecast.planning import Planned
from ggufspec.modelfiles.memory import MemoryPlan, ModelMemory
from ggufspec.report import rows
from ggufspec.report.columns import TableLayout
from ggufspec.report.text import tables

_MOST_PLANS = 16  # besides the last one and the one that is asked for
_DEVICES = TableLayout(row=rows.DeviceRow, names=("name", "weights", "cache", "compute", "total"))
_PLANS = TableLayout(
    row=rows.PlanRow, names=("requested_ngl", "gpu_bytes", "host_bytes", "fits", "roofline_tps")
)


def memory(planned: Planned, output: str) -> str:
    """Return the memory of the shown plan by device, and some plans, the shown one among them."""
    plans = list(rows.list_plans(planned))
    step = max(1, len(plans) // _MOST_PLANS)
    some = [
        item
        for number, item in enumerate(plans)
        if number % step == 0 or number == len(plans) - 1 or item["plan"] == planned.shown
    ]
    devices = tables.render(_DEVICES.fill(_devices(planned.shown)), output)
    return f"{devices}\n\n{tables.render(_PLANS.fill(some), output)}\n"


def _devices(plan: MemoryPlan) -> Iterator[Mapping[str, object]]:
    """Yield the memory of each model on each device; each of several GPUs has its own."""
    for name, model in (("target", plan.target), ("drafter", plan.draft)):
        if model is not None:
            for device, footprint in {**_gpus(model), "the host": model.host}.items():
                yield {"name": f"{name} on {device}", "footprint": footprint}


def _gpus(model: ModelMemory) -> dict[str, object]:
    if len(model.gpus) <= 1:
        return {"the GPU": model.gpu}
    return {f"GPU {number}": footprint for number, footprint in enumerate(model.gpus)}
