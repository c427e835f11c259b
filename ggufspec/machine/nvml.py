"""Clock, temperature and energy of NVIDIA GPUs, through the optional package nvidia-ml-py."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from ggufspec.machine.gpus import visible


def energy_mj() -> float | None:
    """Return the energy in mJ that all GPUs have used since the driver was loaded (Volta and newer)."""
    used = _ask(lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu))
    return sum(used) if used else None


def clock_mhz() -> float | None:
    """Return the mean clock of all GPUs' multiprocessors."""
    clocks = _ask(lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))
    return sum(clocks) / len(clocks) if clocks else None


def temperature_c() -> float | None:
    """Return the temperature of the hottest GPU."""
    found = _ask(lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    return max(found) if found else None


def _ask(question: Callable[[Any, Any], int]) -> list[float] | None:
    """Put a question to every visible GPU; None if one of them cannot answer it."""
    nvml, gpus = _opened()
    if nvml is None:
        return None
    try:
        return [float(question(nvml, gpu)) for gpu in gpus]
    except nvml.NVMLError:
        return None


@cache
def _opened() -> tuple[Any, tuple[Any, ...]]:
    """Load the library once, which takes tens of milliseconds; (None, ()) without it or without a GPU."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None, ()
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(gpu)) for gpu in gpus]
        return nvml, tuple(gpus[index] for index in visible(uuids))
    return None, ()
