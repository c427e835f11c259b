"""The processor load of other programs, measured while this process and its children run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import psutil

_SHORTEST_S = 0.05
_LOOK_S = 0.3
_LONGEST_S = 3.0  # what a watch has seen for longer does not describe this moment


class ProcessorLoad(NamedTuple):
    """Cores busy with other programs (steal included), and cores taken by the hypervisor (steal)."""

    others_cores: float
    steal_cores: float | None


def busy_cores(watch: LoadWatch | None = None) -> float:
    """Return how many cores other processes keep busy, measured for 0.3 s or more.

    Where this process has computed meanwhile, the others may have had to wait. All cores but one are then
    seen busy, at the least.

    Args:
        watch: one that has begun already, so that less time is left to wait. A new one is begun instead of
            none, and of one that began more than 3 s ago.
    """
    if watch is None or time.monotonic() - watch.at_s > _LONGEST_S:
        watch = LoadWatch.start()
    time.sleep(max(0.0, watch.at_s + _LOOK_S - time.monotonic()))
    return watch.others() or 0.0


@dataclass(frozen=True, kw_only=True)
class LoadWatch:
    """Processor seconds of all processes, and of this process and its descendants, at one moment.

    When a child is waited for, its seconds move from its own counter to its parent's counter for ended
    children. Both counters of this process and of every live descendant are summed, so that the sum never
    jumps. A descendant whose parent has ended still counts while it runs.
    """

    at_s: float
    all_s: float
    own_s: float
    steal_s: float | None = None  # None if the system does not report it
    family: frozenset[psutil.Process] = frozenset()  # live descendants

    @classmethod
    def start(cls, ours: Iterable[psutil.Process] = ()) -> LoadWatch:
        """Read the counters; ``ours`` are earlier descendants, which count while they run."""
        family = frozenset(descendants()).union(process for process in ours if process.is_running())
        own_s = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # also part of user
        return cls(
            at_s=time.monotonic(),
            all_s=sum(times) - idle - guests,
            own_s=own_s + sum(map(_used_s, family)),
            steal_s=getattr(times, "steal", None),
            family=family,
        )

    def load(self) -> ProcessorLoad | None:
        """Return the load of other programs since the start.

        None within the first 50 ms: the kernel counts in steps of 10 ms, which is too coarse.
        """
        now = LoadWatch.start(self.family)
        elapsed = now.at_s - self.at_s
        if elapsed < _SHORTEST_S:
            return None
        others = (now.all_s - self.all_s) - (now.own_s - self.own_s)
        steal = None if now.steal_s is None or self.steal_s is None else now.steal_s - self.steal_s
        return ProcessorLoad(
            others_cores=max(0.0, others / elapsed),
            steal_cores=None if steal is None else max(0.0, steal / elapsed),
        )

    def others(self) -> float | None:
        """Return the cores busy with other programs since the start; None within the first 50 ms."""
        load = self.load()
        return None if load is None else load.others_cores


def descendants(proc: str = "/proc") -> Iterator[psutil.Process]:
    """Yield the live descendants of this process, including ended ones that were not waited for yet.

    Linux lists the children of each thread (CONFIG_PROC_CHILDREN), which takes microseconds. Elsewhere psutil
    looks at every process of the machine.
    """
    own_pid = os.getpid()
    if not os.path.exists(f"{proc}/{own_pid}/task/{own_pid}/children"):  # noqa: PTH110  # pathlib is too slow here
        yield from psutil.Process().children(recursive=True)
        return
    waiting, seen = [own_pid], {own_pid}
    while waiting:
        for pid in _children(f"{proc}/{waiting.pop()}/task"):
            if pid not in seen:
                seen.add(pid)
                waiting.append(pid)
                with suppress(psutil.Error):
                    yield psutil.Process(pid)


def _children(threads: str) -> list[int]:
    pids: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(threads):  # noqa: PTH208  # a server may have a hundred threads
            with suppress(OSError), open(f"{threads}/{thread}/children", "rb", 0) as file:  # noqa: PTH123
                pids += map(int, file.read().split())
    return pids


def _used_s(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of the children it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
