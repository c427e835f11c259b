"""A stand-in for nvidia-ml-py's module ``pynvml`` with GPUs of our own making."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

from ggufspec.machine import nvml

NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 13, 15  # as in nvml.h


class NVMLError(Exception):
    """As the real one: holds the number of what went wrong."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


@dataclass(kw_only=True)
class FakeGpu:
    """What one GPU answers; ``refuses`` are functions that it answers with an error."""

    uuid: str = "GPU-a"
    name: str = "NVIDIA H100"
    sm_mhz: int = 1980
    memory_mhz: int = 3201
    celsius: int = 40
    milliwatts: int = 100_000
    limit_milliwatts: int = 700_000
    millijoules: int = 5_000_000
    used_bytes: int = 1 << 30
    total_bytes: int = 80 << 30
    reasons: int = 0
    refuses: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


def install(monkeypatch: pytest.MonkeyPatch, *gpus: FakeGpu, without: tuple[str, ...] = ()) -> None:
    """Put GPUs into this machine."""
    monkeypatch.setitem(sys.modules, "pynvml", module(*gpus, without=without))
    monkeypatch.setattr(nvml, "_open_library", functools.cache(nvml._open_library.__wrapped__))


def module(*gpus: FakeGpu, without: tuple[str, ...] = ()) -> ModuleType:
    """Return a module with these GPUs as handles; ``without`` are functions that its version has not."""
    made = ModuleType("pynvml")
    answers: dict[str, Callable[..., object]] = {
        "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
        "nvmlDeviceGetName": lambda gpu: gpu.name,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {1: gpu.sm_mhz, 2: gpu.memory_mhz}[kind],
        "nvmlDeviceGetTemperature": lambda gpu, sensor: {0: gpu.celsius}[sensor],
        "nvmlDeviceGetTemperatureV": lambda gpu, sensor: {0: gpu.celsius}[sensor],
        "nvmlDeviceGetPowerUsage": lambda gpu: gpu.milliwatts,
        "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.limit_milliwatts,
        "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.millijoules,
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(
            total=gpu.total_bytes, used=gpu.used_bytes, free=gpu.total_bytes - gpu.used_bytes
        ),
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
    }

    def asking(name: str) -> Callable[..., object]:
        def ask(gpu: FakeGpu, *rest: int) -> object:
            gpu.asked.append(name)
            if name in gpu.refuses:
                raise NVMLError(gpu.refuses[name])
            return answers[name](gpu, *rest)

        return ask

    names = {
        **{name: asking(name) for name in answers},
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
        "nvmlSystemGetDriverVersion": lambda: "580.65.06",
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
    }
    for name, value in names.items():
        if name not in without:
            setattr(made, name, value)
    return made
