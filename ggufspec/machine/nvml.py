"""NVIDIA GPUs by nvidia-ml-py: which are here, their memory, clocks, temperature and power.

llama.cpp's own list of GPUs is read in ``llama/``. Every field is read separately. A field that a GPU does
not support (common on partitioned, virtual and old GPUs) is None. Without a driver or a GPU, nothing is read.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

_REASONS = {
    0x002: "applications-clocks",  # set by a user
    0x004: "sw-power-cap",  # power limit: normal under full load
    0x008: "hw-slowdown",  # also set for a moment while clocks change
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "hw-power-brake",  # requested by the power supply
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",  # voltage reliability
}
"""Why clocks are reduced (nvmlClocksEventReasons in nvml.h). 0x1, idle, is left out."""
SLOWDOWNS = frozenset({"sw-thermal", "hw-thermal", "hw-power-brake"})
"""Reasons that better cooling or a better power supply would remove."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU; ``free_bytes`` is the memory that was free when the driver was asked."""

    name: str
    total_bytes: int
    free_bytes: int


def visible(uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the GPUs that CUDA_VISIBLE_DEVICES lists by number or by UUID (or its beginning).

    As in CUDA, the first invalid entry ends the list. Numbers are in the driver's order; CUDA's order differs
    only on machines with different models of GPU.
    """
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return tuple(range(len(uuids)))
    indices: list[int] = []
    for entry in map(str.strip, wanted.split(",")):
        matches = [
            index
            for index, uuid in enumerate(uuids)
            if entry == str(index) or (entry.startswith("GPU-") and uuid.startswith(entry))
        ]
        if len(matches) != 1:
            break
        indices += matches
    return tuple(indices)


class Reading(NamedTuple):
    """The state of one GPU at one moment; None for fields it does not report."""

    sm_mhz: float | None
    memory_mhz: float | None
    celsius: float | None
    watts: float | None
    used_bytes: int | None  # by all programs, the driver included
    reasons: tuple[str, ...] | None  # of _REASONS; () if clocks are not reduced


def present() -> bool:
    """Whether there is a GPU to read."""
    return bool(_open_library()[1])


def nvidia_gpus() -> tuple[Gpu, ...]:
    """Return the visible GPUs; those that share the host's memory report none, and are left out."""

    def read(nvml: Any, gpu: Any) -> Gpu:
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        name = str(nvml.nvmlDeviceGetName(gpu))
        return Gpu(name=name, total_bytes=int(memory.total), free_bytes=int(memory.free))

    return tuple(gpu for gpu in _read_each(read) if gpu is not None)


def read_gpus() -> tuple[Reading, ...]:
    """Return the state of each visible GPU; takes some tenths of a millisecond per GPU."""
    fields = (
        _read_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))),
        _read_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))),
        _read_each(_celsius),
        _read_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1000),
        _read_each(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used)),
        _read_each(_reasons),
    )
    return tuple(Reading(*values) for values in zip(*fields, strict=True))


def energy_mj() -> tuple[float | None, ...]:
    """Return the energy in mJ that each GPU has used since the driver was loaded (Volta and newer)."""
    return _read_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)))


def power_limit_w() -> float | None:
    """Return the power limit of all visible GPUs together; None if one does not report it."""
    limits = _read_each(lambda nvml, gpu: float(nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)) / 1000)
    reported = [limit for limit in limits if limit is not None]
    return sum(reported) if reported and len(reported) == len(limits) else None


def driver_version() -> str | None:
    """Return the driver's version, such as 580.65.06."""
    return next(iter(_read_each(lambda nvml, _: str(nvml.nvmlSystemGetDriverVersion()))), None)


def total_bytes() -> tuple[int, ...]:
    """Return the memory of each visible GPU; () if one does not report it."""
    totals = _read_each(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total))
    reported = tuple(total for total in totals if total is not None)
    return reported if len(reported) == len(totals) else ()


def temperature_c() -> float | None:
    """Return the temperature of the hottest GPU."""
    return max((gpu.celsius for gpu in read_gpus() if gpu.celsius is not None), default=None)


def _celsius(nvml: Any, gpu: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    except (nvml.NVMLError, AttributeError):  # nvml.h says that CUDA 14 removes it
        return float(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))


def _reasons(nvml: Any, gpu: Any) -> tuple[str, ...]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    except (nvml.NVMLError, AttributeError):  # drivers and packages before 535 use the old name
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    return tuple(name for bit, name in _REASONS.items() if bits & bit)


def _read_each(read: Callable[[Any, Any], _T]) -> tuple[_T | None, ...]:
    """Read a field of every visible GPU; None if the GPU, its driver or the package does not support it."""
    nvml, gpus = _open_library()
    values: list[_T | None] = []
    for gpu in gpus:
        try:
            values.append(read(nvml, gpu))
        except (nvml.NVMLError, AttributeError):
            values.append(None)
    return tuple(values)


@cache
def _open_library() -> tuple[Any, tuple[Any, ...]]:
    """Load the library and list the GPUs, once: it takes tens of milliseconds. (None, ()) without a GPU."""
    nvml = importlib.import_module("pynvml")
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(gpu)) for gpu in gpus]
        return nvml, tuple(gpus[index] for index in visible(uuids))
    return None, ()
