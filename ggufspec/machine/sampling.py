"""The machine's state while a run is measured; that of GPUs is read several times a second by a thread."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, NamedTuple, Self

from ggufspec.domain import Conditions
from ggufspec.machine import nvml, sensors
from ggufspec.machine.load import LoadWatch

_PERIOD_S = 0.15
_JOIN_S = 1.0  # for the thread to end if the driver does not answer


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
    """Counters at the start of a run. ``start`` and ``conditions`` together take a few milliseconds.

    If there are GPUs to read, a thread reads them until ``conditions`` is called, the ``with`` block ends, or
    the object is garbage-collected. Without GPUs there is no thread.
    """

    at_s: float
    load: LoadWatch
    energy: Mapping[str, sensors.EnergyCounter] | None
    swapped_bytes: int | None
    root: Path
    gpus: GpuSampler | None

    @classmethod
    def start(cls, root: Path = sensors.SYS) -> Watch:
        """Read the counters; ``root`` is the folder of sysfs."""
        return cls(
            load=LoadWatch.start(),
            swapped_bytes=sensors.swapped_bytes(),
            energy=sensors.energy(root),
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
        energy, load = sensors.energy(self.root), self.load.load()
        cpu_w = sensors.mean_w(self.energy, energy, elapsed_s)
        return replace(
            gpus,
            others_cores=load and load.others_cores,
            steal_cores=load and load.steal_cores,
            cpu_mhz=sensors.frequency_mhz(),
            cpu_c=sensors.temperature_c(self.root),
            cpu_w=cpu_w,
            cpu_j=None if cpu_w is None else cpu_w * elapsed_s,
            swapped_bytes=_increase(self.swapped_bytes, sensors.swapped_bytes()),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.gpus:
            self.gpus.stop()


def _increase(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)
