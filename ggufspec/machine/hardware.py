"""This machine's name, processor, memory and ports, and how fast it reads its memory."""

from __future__ import annotations

import os
import platform
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

from ggufspec import proc
from ggufspec.domain import Machine
from ggufspec.errors import ChildCrashedError
from ggufspec.machine import nvml
from ggufspec.machine.details import details
from ggufspec.machine.nvml import Gpu

_TIMEOUT_S = 5.0
_BLOCK_BYTES = 32 << 20  # of each thread; together more than caches hold
_MOST_THREADS = 16
_ROUNDS = 4


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
        details=details(),
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """Memory for models: the host's total, the part that is free, and the GPUs that may be used.

    The system's file cache counts as free.
    """

    total_bytes: int
    free_bytes: int
    gpus: tuple[Gpu, ...] = ()


def memory(gpus: tuple[Gpu, ...] = ()) -> Room:
    """Return the memory available now; ``gpus`` are those that the llama.cpp in use can use."""
    host = psutil.virtual_memory()
    return Room(total_bytes=host.total, free_bytes=host.available, gpus=gpus)


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Hyper-threads are not counted: with llama.cpp's spinning barriers they slow a run down.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return _apple_name() or platform.processor() or platform.machine()


def _apple_name() -> str | None:
    """Return the processor's name as macOS has it; Python says only ``arm`` there."""
    if platform.system() != "Darwin":
        return None
    try:
        _, out, _ = proc.capture(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], timeout_s=_TIMEOUT_S)
    except ChildCrashedError:
        return None
    return out.strip() or None


def count_listeners(port: int) -> int | None:
    """Return how many sockets listen on a TCP port of this machine; None where the system does not tell."""
    try:
        connections = psutil.net_connections("tcp4")
    except psutil.AccessDenied:  # macOS tells only root
        return None
    listening = [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]
    return sum(address[1:] == (port,) for address in listening)  # host, port


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the processor's largest cache; None where the system does not state it.

    Linux does: /sys/devices/system/cpu/cpu0/cache, Documentation/ABI/testing/sysfs-devices-system-cpu. A
    processor with several such caches reads its own one fastest, so they are not added.
    """
    sizes = root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")
    texts = (file.read_text(encoding="utf-8").strip() for file in sizes)
    kibibytes = (int(text.removesuffix("K")) for text in texts if text.removesuffix("K").isdecimal())
    return max((number << 10 for number in kibibytes), default=None)


def read_bandwidth(threads: int) -> float:
    """Return bytes/s of reading memory with some threads at once; takes some 0.1 s.

    It is the fastest of several rounds, as other programs only slow them.
    """
    import numpy as np  # most commands need none of it

    blocks = [np.ones(_BLOCK_BYTES // 8) for _ in range(max(1, min(threads, _MOST_THREADS)))]
    with ThreadPoolExecutor(len(blocks)) as pool:

        def read_all() -> float:
            started = perf_counter()
            for _ in pool.map(np.sum, blocks):
                pass
            return len(blocks) * _BLOCK_BYTES / (perf_counter() - started)

        return max(read_all() for _ in range(_ROUNDS))
