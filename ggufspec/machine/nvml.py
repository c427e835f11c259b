"""What NVIDIA's driver says of the GPUs that may be used, through the optional package nvidia-ml-py.

Every field is asked for alone: one that a GPU does not support (partitioned, virtual and old ones leave some
out) is None, and the others stay. Without the package, a driver or a GPU there is nothing to ask.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

from ggufspec.machine.gpus import visible

_T = TypeVar("_T")

_REASONS = {
    0x002: "applications-clocks",  # somebody set them
    0x004: "sw-power-cap",  # the power limit: usual under full load
    0x008: "hw-slowdown",  # also said for a moment while clocks change
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "hw-power-brake",  # the power supply asked for it
    0x100: "display-clocks",
    0x200: "board-limit",
    0x400: "reliability",  # of the voltage
}
"""Why clocks are lower than they could be, nvmlClocksEventReasons of nvml.h; 0x1, idle, is no reason."""
SLOWDOWNS = frozenset({"sw-thermal", "hw-thermal", "hw-power-brake"})
"""Those by which a GPU protects itself: it is slower than it would be if it were cooled or fed better."""


class Reading(NamedTuple):
    """One GPU at one moment; None is what it does not tell."""

    sm_mhz: float | None
    memory_mhz: float | None
    celsius: float | None
    watts: float | None
    used_bytes: int | None  # by everyone, the driver's own share included
    reasons: tuple[str, ...] | None  # of _REASONS; () where nothing holds the clocks back


def installed() -> bool:
    """Whether the package is there, with or without a GPU."""
    return _package() is not None


def present() -> bool:
    """Whether there is a GPU that can be asked."""
    return bool(_opened()[1])


def read_gpus() -> tuple[Reading, ...]:
    """Return what each visible GPU tells now; some tenths of a millisecond each."""
    fields = (
        _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))),
        _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM))),
        _each(_celsius),
        _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetPowerUsage(gpu)) / 1000),
        _each(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used)),
        _each(_reasons),
    )
    return tuple(Reading(*told) for told in zip(*fields, strict=True))


def energy_mj() -> tuple[float | None, ...]:
    """Return the energy in mJ that each GPU has used since its driver was loaded (Volta and newer)."""
    return _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)))


def power_limit_w() -> float | None:
    """Return the power that all visible GPUs together may draw; None if one does not tell."""
    limits = _each(lambda nvml, gpu: float(nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)) / 1000)
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known and len(known) == len(limits) else None


def driver_version() -> str | None:
    """Return the driver's version, such as 580.65.06."""
    return next(iter(_each(lambda nvml, _: str(nvml.nvmlSystemGetDriverVersion()))), None)


def total_bytes() -> tuple[int, ...]:
    """Return the memory of each visible GPU; () if one does not tell."""
    totals = _each(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total))
    known = tuple(total for total in totals if total is not None)
    return known if len(known) == len(totals) else ()


def temperature_c() -> float | None:
    """Return the temperature of the hottest GPU."""
    return max((each.celsius for each in read_gpus() if each.celsius is not None), default=None)


def _celsius(nvml: Any, gpu: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
    except (nvml.NVMLError, AttributeError):  # its header says that CUDA 14 takes it away
        return float(nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU))


def _reasons(nvml: Any, gpu: Any) -> tuple[str, ...]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    except (nvml.NVMLError, AttributeError):  # before 535, of the driver or the package: the old name
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
    return tuple(name for bit, name in _REASONS.items() if bits & bit)


def _each(question: Callable[[Any, Any], _T]) -> tuple[_T | None, ...]:
    """Put a question about every visible GPU; None where it, its driver or the package cannot answer."""
    nvml, gpus = _opened()
    answers: list[_T | None] = []
    for gpu in gpus:
        try:
            answers.append(question(nvml, gpu))
        except (nvml.NVMLError, AttributeError):
            answers.append(None)
    return tuple(answers)


def _package() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


@cache
def _opened() -> tuple[Any, tuple[Any, ...]]:
    """Load the library once, which takes tens of milliseconds; (None, ()) without it or without a GPU."""
    nvml = _package()
    if nvml is None:
        return None, ()
    with suppress(nvml.NVMLError):
        nvml.nvmlInit()
        gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        uuids = [str(nvml.nvmlDeviceGetUUID(gpu)) for gpu in gpus]
        return nvml, tuple(gpus[index] for index in visible(uuids))
    return None, ()
