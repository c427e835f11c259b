"""What the machine is: its name, its processor, its memory."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from ggufspec.domain import Machine
from ggufspec.machine import nvml
from ggufspec.machine.gpus import Gpu


def snapshot(gpus: tuple[str, ...] = ()) -> Machine:
    """Describe this machine; ``gpus`` are the devices that llama.cpp reports."""
    return Machine(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_driver=nvml.driver_version(),
        gpu_bytes=nvml.total_bytes(),
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """Memory to run in: the host's, what of it is available, and that of the GPUs that may be used.

    Caches of files can be given back and count as free.
    """

    total_bytes: int
    free_bytes: int
    gpus: tuple[Gpu, ...] = ()


def memory(gpus: tuple[Gpu, ...] = ()) -> Room:
    """Return how much memory there is now; ``gpus`` are those that the build in use can use."""
    host = psutil.virtual_memory()
    return Room(total_bytes=host.total, free_bytes=host.available, gpus=gpus)


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Hyper-threads are not counted: llama.cpp's spinning barriers make them slower than none.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
