"""The machine's state while a run is measured; that of GPUs is read several times a second by a thread.

What a sensor of the processor does not tell, or no program may read, is None.
"""

from __future__ import annotations

import resource
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

import psutil

from ggufspec import paths
from ggufspec.domain import Conditions
from ggufspec.machine import nvml

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
        # ended ones that were not waited for yet, too
        children = psutil.Process().children(recursive=True)
        family = frozenset([*children, *(process for process in ours if process.is_running())])
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


def _used_s(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of the children it has waited for."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


SYS = Path("/sys")
_PERIOD_S = 0.15
_JOIN_S = 1.0  # for the thread to end if the driver does not answer
_CHIPS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
_MOST_W = 500.0  # of one processor package


class Moment(NamedTuple):
    """The state of all GPUs at one moment; ``at_s`` is ``time.monotonic()``."""

    at_s: float
    gpus: tuple[nvml.Reading, ...]


class GpuSampler:
    """Reads the GPUs from construction until ``stop``, or until the object is garbage-collected.

    Raises:
        RuntimeError: the thread cannot be started.
    """

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._conditions: Conditions | None = None
        self._over = threading.Event()
        self._moments = [_now()]
        self._thread = threading.Thread(
            target=_sample, args=(self._moments, self._over, period_s), name="ggufspec-gpus", daemon=True
        )
        weakref.finalize(self, self._over.set)
        self._energy_mj = nvml.energy_mj()
        self._thread.start()

    def stop(self) -> Conditions:
        """End the thread and return the conditions of the GPUs; later calls return the same."""
        if self._conditions is None:
            after_mj = nvml.energy_mj()
            self._over.set()
            self._thread.join(_JOIN_S)
            moments = [*self._moments, _now()]
            self._conditions = summary(moments, self._energy_mj, after_mj, power_limit_w=nvml.power_limit_w())
        return self._conditions


def summary(
    moments: Sequence[Moment],
    before_mj: Sequence[float | None],
    after_mj: Sequence[float | None],
    *,
    power_limit_w: float | None = None,
) -> Conditions:
    """Summarise moments as conditions. A field that one of the GPUs never reported is None.

    Clocks and the reasons for reduced clocks leave out the first and the last moment, when nothing runs, if
    there are others.

    Args:
        moments: at least the first and the last, in order of time.
        before_mj: energy counter of each GPU at the first moment.
        after_mj: energy counter of each GPU at the last moment.
        power_limit_w: power limit of all GPUs together.
    """
    inner = moments[1:-1] or moments
    celsius, reasons = _series(moments, "celsius"), _series(inner, "reasons")
    used, watts = (_totals(moments, name) for name in ("used_bytes", "watts"))
    joules = _joules(moments, before_mj, after_mj)
    elapsed_s = moments[-1].at_s - moments[0].at_s
    return Conditions(
        gpu_mhz=_mean(_series(inner, "sm_mhz")),
        gpu_memory_mhz=_mean(_series(inner, "memory_mhz")),
        gpu_c=max(map(max, celsius), default=None),
        gpu_w=None if joules is None or elapsed_s <= 0 else joules / elapsed_s,
        gpu_peak_w=max(watts, default=None),
        gpu_power_limit_w=power_limit_w,
        gpu_j=joules,
        gpu_used_bytes=used[0] if used else None,
        gpu_peak_bytes=max(used, default=None),
        gpu_throttled=tuple(sorted(set[str]().union(*chain(*reasons)))) if reasons else None,
    )


def _series(moments: Sequence[Moment], name: str) -> list[list[Any]]:
    """Return the values of a field over time, for each GPU; empty if one of them never reported it."""
    rows = ([getattr(gpu, name) for gpu in moment.gpus] for moment in moments)
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    return columns if all(columns) else []


def _mean(series: Sequence[Sequence[float]]) -> float | None:
    return fmean(map(fmean, series)) if series else None


def _totals(moments: Sequence[Moment], name: str) -> list[Any]:
    """Return a field summed over all GPUs, for moments at which every GPU reported it."""
    rows = ([getattr(gpu, name) for gpu in moment.gpus] for moment in moments)
    return [sum(row) for row in rows if row and None not in row]


def _joules(
    moments: Sequence[Moment], before_mj: Sequence[float | None], after_mj: Sequence[float | None]
) -> float | None:
    """Return the energy of all GPUs: from their counters, or integrated from their power without a counter.

    A counter that decreased was reset (the driver was reloaded or the GPU reset) and is ignored.
    """
    total = 0.0
    for index, (before, after) in enumerate(zip(before_mj, after_mj, strict=True)):
        if before is not None and after is not None and after >= before:
            total += (after - before) / 1000
            continue
        power = [
            (moment.at_s, watts) for moment in moments if (watts := moment.gpus[index].watts) is not None
        ]
        if len(power) < 2:
            return None  # the sum would leave a GPU out
        total += sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(power))
    return total if before_mj else None


def _now() -> Moment:
    return Moment(time.monotonic(), nvml.read_gpus())


def _sample(moments: list[Moment], over: threading.Event, period_s: float) -> None:
    """Add a moment every period until ``over`` is set. It holds no reference to the sampler."""
    while not over.wait(period_s):
        moments.append(_now())


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Counters at the start of a run. ``start`` and ``conditions`` together take some milliseconds.

    If there are GPUs to read, a thread reads them until ``conditions`` is called, the ``with`` block ends, or
    the object is garbage-collected. Without GPUs there is no thread.
    """

    at_s: float
    load: LoadWatch
    energy: Mapping[str, EnergyCounter] | None
    swapped_bytes: int | None
    root: Path
    gpus: GpuSampler | None

    @classmethod
    def start(cls, root: Path = SYS) -> Watch:
        """Read the counters; ``root`` is the folder of sysfs."""
        return cls(
            load=LoadWatch.start(),
            swapped_bytes=swapped_bytes(),
            energy=energy(root),
            at_s=time.monotonic(),
            root=root,
            gpus=GpuSampler() if nvml.present() else None,
        )

    def conditions(self) -> Conditions:
        """Return the conditions since the start: counters over the complete run, sensors at its end.

        GPUs are not read afterwards, so later calls return the same values for them.
        """
        gpus = self.gpus.stop() if self.gpus else Conditions()
        elapsed_s = time.monotonic() - self.at_s
        load = self.load.load()
        cpu_w = mean_w(self.energy, energy(self.root), elapsed_s)
        return replace(
            gpus,
            others_cores=load and load.others_cores,
            steal_cores=load and load.steal_cores,
            cpu_mhz=frequency_mhz(),
            cpu_c=temperature_c(self.root),
            cpu_w=cpu_w,
            cpu_j=None if cpu_w is None else cpu_w * elapsed_s,
            swapped_bytes=_increase(self.swapped_bytes, swapped_bytes()),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.gpus:
            self.gpus.stop()


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


class EnergyCounter(NamedTuple):
    """Energy counter of one processor package in µJ; it wraps around at ``range_uj``."""

    used_uj: int
    range_uj: int


def energy(root: Path = SYS) -> Mapping[str, EnergyCounter] | None:
    """Return the energy counters of all processor packages (Linux RAPL, on Intel and AMD).

    None if there are none, or if only root may read them, as on most systems since CVE-2020-8694. Sub-domains
    (``intel-rapl:0:1``) are part of their package and not read; ``psys`` covers more than the processor.
    """
    counters: dict[str, EnergyCounter] = {}
    for domain in (root / "class/powercap").glob("intel-rapl:*"):
        if domain.name.count(":") > 1 or not paths.text_of(domain / "name").startswith("package"):
            continue
        used, limit = _number(domain / "energy_uj"), _number(domain / "max_energy_range_uj")
        if used is None or not limit:
            return None  # the sum would leave a package out
        counters[domain.name] = EnergyCounter(used, limit)
    return counters or None


def mean_w(
    before: Mapping[str, EnergyCounter] | None, after: Mapping[str, EnergyCounter] | None, elapsed_s: float
) -> float | None:
    """Return the mean power of all packages between two readings.

    None if a counter may have wrapped around more than once.
    """
    if not before or not after or before.keys() != after.keys() or elapsed_s <= 0:
        return None
    if any(counter.range_uj < _MOST_W * elapsed_s * 1e6 for counter in after.values()):
        return None
    used_uj = sum((after[name].used_uj - before[name].used_uj) % after[name].range_uj for name in after)
    return used_uj / 1e6 / elapsed_s


def frequency_mhz() -> float | None:
    """Return the mean frequency of all cores, idle ones included."""
    try:
        current: float = getattr(psutil.cpu_freq(), "current", 0.0)
    except (OSError, RuntimeError):
        return None
    return current or None


def temperature_c(root: Path = SYS) -> float | None:
    """Return the highest temperature among the processor's sensors.

    Other chips, such as those of disks, are not read: they can take tens of milliseconds to answer.
    """
    chips = [chip for chip in (root / "class/hwmon").glob("*") if paths.text_of(chip / "name") in _CHIPS]
    readings = [_number(sensor) for chip in chips for sensor in chip.glob("temp*_input")]
    return max((reading / 1000 for reading in readings if reading is not None), default=None)


def swapped_bytes() -> int | None:
    """Return the bytes that all programs have swapped in and out since the machine started."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # psutil warns if the kernel does not count
            swap = psutil.swap_memory()
    except (OSError, RuntimeWarning):
        return None
    return swap.sin + swap.sout


def _number(file: Path) -> int | None:
    text = paths.text_of(file)
    return int(text) if text.lstrip("-").isdecimal() else None
