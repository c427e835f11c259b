"""How busy others keep the processor, while we and our children use it too."""

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


class ProcessorLoad(NamedTuple):
    """Cores that were busy with others' work, steal included, and those that the hypervisor took."""

    others_cores: float
    steal_cores: float | None


def busy_cores(interval_s: float = 0.3) -> float:
    """Return how many cores other processes keep busy, watched for ``interval_s`` seconds."""
    watch = LoadWatch.start()
    time.sleep(interval_s)
    return watch.others() or 0.0


@dataclass(frozen=True, kw_only=True)
class LoadWatch:
    """Processor seconds of everyone, and of us and our children, at one moment.

    A child's seconds move when it is waited for, from its own account to that of its parent's dead children.
    Both accounts are counted, of us and of every live descendant, so that the sum never jumps. A descendant
    that lost its parent meanwhile is found again as long as it lives.
    """

    at_s: float
    everyone_s: float
    ours_s: float
    steal_s: float | None = None  # None where the system does not count it
    family: frozenset[psutil.Process] = frozenset()  # our live descendants

    @classmethod
    def start(cls, known: Iterable[psutil.Process] = ()) -> LoadWatch:
        """Read the clocks; ``known`` are descendants of before, which count as long as they live."""
        family = frozenset(descendants()).union(process for process in known if process.is_running())
        ours = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted in user, too
        return cls(
            at_s=time.monotonic(),
            everyone_s=sum(times) - idle - guests,
            ours_s=ours + sum(map(_used_s, family)),
            steal_s=getattr(times, "steal", None),
            family=family,
        )

    def load(self) -> ProcessorLoad | None:
        """Return what others did since the start.

        None for less than 50 ms: the kernel counts in steps of 10 ms, which would be all that one sees.
        """
        now = LoadWatch.start(self.family)
        elapsed = now.at_s - self.at_s
        if elapsed < _SHORTEST_S:
            return None
        others = (now.everyone_s - self.everyone_s) - (now.ours_s - self.ours_s)
        steal = None if now.steal_s is None or self.steal_s is None else now.steal_s - self.steal_s
        return ProcessorLoad(
            others_cores=max(0.0, others / elapsed),
            steal_cores=None if steal is None else max(0.0, steal / elapsed),
        )

    def others(self) -> float | None:
        """Return the cores that were busy with others' work since the start; None for less than 50 ms."""
        load = self.load()
        return None if load is None else load.others_cores


def descendants(proc: str = "/proc") -> Iterator[psutil.Process]:
    """Yield our live descendants, those that nobody has waited for yet included.

    Linux lists each thread's children (CONFIG_PROC_CHILDREN), which is read in microseconds; without that,
    psutil looks at every process of the machine.
    """
    us = os.getpid()
    if not os.path.exists(f"{proc}/{us}/task/{us}/children"):  # noqa: PTH110  # pathlib is too slow here
        yield from psutil.Process().children(recursive=True)
        return
    waiting, seen = [us], {us}
    while waiting:
        for pid in _children(f"{proc}/{waiting.pop()}/task"):
            if pid not in seen:
                seen.add(pid)
                waiting.append(pid)
                with suppress(psutil.Error):
                    yield psutil.Process(pid)


def _children(threads: str) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(threads):  # noqa: PTH208  # a server has a hundred threads
            with suppress(OSError), open(f"{threads}/{thread}/children", "rb", 0) as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


def _used_s(process: psutil.Process) -> float:
    """Processor seconds of a process and of those of its children that it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
