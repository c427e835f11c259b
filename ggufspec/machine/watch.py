"""The machine's state while a run is measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ggufspec.domain import Conditions
from ggufspec.machine import nvml, sensors
from ggufspec.machine.load import LoadWatch
from ggufspec.machine.sampling import GpuSampler


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
