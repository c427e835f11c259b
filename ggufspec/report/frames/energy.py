"""Columns about the energy, memory and state of GPUs and processors; empty where they could not be read."""

from __future__ import annotations

from typing import Any

from ggufspec.analysis import Arm
from ggufspec.results import Runs

_DEVICES = ("GPU", "CPU")
_ESTIMATES = {"j_per_token": "per_token", "energy_ratio": "ratio"}
_ENDS = {"": "value", "_lo": "lo", "_hi": "hi"}

ARM_COLUMNS = tuple(
    f"{device.lower()}_{name}{end}" for device in _DEVICES for name in _ESTIMATES for end in _ENDS
)
"""Per arm: J per token, and its ratio to the target alone, with intervals; see ``arms.Energy``."""

RUN_COLUMNS = (
    *("cpu_j", "gpu_j", "gpu_memory_mhz", "gpu_peak_w", "gpu_power_limit_w"),
    *("gpu_used_bytes", "gpu_peak_bytes", "gpu_throttled"),
)
"""Per run: fields of ``Conditions``."""


def of_arm(arm: Arm) -> dict[str, Any]:
    """Return an arm's values of ``ARM_COLUMNS``; a device that was not measured has none."""
    return {
        f"{device.lower()}_{name}{end}": getattr(getattr(energy, field), part, None)
        for device, energy in arm.energy.items()
        for name, field in _ESTIMATES.items()
        for end, part in _ENDS.items()
    }


def throttled(runs: Runs) -> list[str | None]:
    """Return the reasons of GPU throttling in each run; None without throttling, or where unknown."""
    return ["; ".join(reasons or ()) or None for reasons in runs.column("gpu_throttled")]
