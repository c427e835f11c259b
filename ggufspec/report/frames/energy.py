"""Columns about the energy, memory and state of GPUs and processors, empty where nobody could read them."""

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
"""Per arm: J per token, and that over the target alone, each with its interval; see ``arms.Energy``."""

RUN_COLUMNS = (
    *("cpu_j", "gpu_j", "gpu_memory_mhz", "gpu_peak_w", "gpu_power_limit_w"),
    *("gpu_used_bytes", "gpu_peak_bytes", "gpu_throttled"),
)
"""Per run: fields of ``Conditions``."""


def of_arm(arm: Arm) -> dict[str, Any]:
    """Return an arm's cells of ``ARM_COLUMNS``; devices that were not measured have none."""
    return {
        f"{device.lower()}_{name}{end}": getattr(getattr(found, field), part, None)
        for device, found in arm.energy.items()
        for name, field in _ESTIMATES.items()
        for end, part in _ENDS.items()
    }


def throttled(runs: Runs) -> list[str | None]:
    """Return what held the GPUs' clocks back in each run; empty where nothing did, or nobody knows."""
    return ["; ".join(reasons or ()) or None for reasons in runs.column("gpu_throttled")]
