"""The machine that measures: what it is, and how quiet it is."""

from __future__ import annotations

import os
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from ggufspec.domain import Machine


def snapshot(gpus: tuple[str, ...] = ()) -> Machine:
    """Describe this machine; ``gpus`` are the devices that llama.cpp reports."""
    return Machine(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
    )


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Hyper-threads are not counted: llama.cpp's spinning barriers make them slower than none.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def busy_cores(interval_s: float = 0.3) -> float:
    """Return how many cores other processes keep busy, watched for ``interval_s`` seconds."""
    watch = LoadWatch.start()
    time.sleep(interval_s)
    return watch.others() or 0.0


@dataclass(frozen=True, kw_only=True)
class LoadWatch:
    """Processor seconds of everyone, and of us and our children, at one moment."""

    at_s: float
    everyone_s: float
    ours_s: float

    @classmethod
    def start(cls) -> LoadWatch:
        """Read the clocks."""
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user, too
        ours = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return cls(at_s=time.monotonic(), everyone_s=sum(times) - idle - guests, ours_s=ours)

    def others(self) -> float | None:
        """Return the cores that were busy with others' work since the start, steal included.

        None for less than 50 ms: the kernel counts in steps of 10 ms, which would be all that one sees.
        """
        now = LoadWatch.start()
        elapsed = now.at_s - self.at_s
        if elapsed < 0.05:
            return None
        others = (now.everyone_s - self.everyone_s) - (now.ours_s - self.ours_s)
        return max(0.0, others / elapsed)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
