"""The machine's state while a run is measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec.domain import Conditions
from ggufspec.machine import nvml, sensors
from ggufspec.machine.load import LoadWatch


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What the counters said at the start. Start and conditions together take a few milliseconds."""

    at_s: float
    load: LoadWatch
    energy: Mapping[str, sensors.EnergyCounter] | None
    gpu_energy_mj: float | None
    swapped_bytes: int | None
    root: Path

    @classmethod
    def start(cls, root: Path = sensors.SYS) -> Watch:
        """Read the counters; ``root`` is where the kernel shows its devices."""
        return cls(
            load=LoadWatch.start(),
            swapped_bytes=sensors.swapped_bytes(),
            gpu_energy_mj=nvml.energy_mj(),
            energy=sensors.energy(root),
            at_s=time.monotonic(),
            root=root,
        )

    def conditions(self) -> Conditions:
        """Return the conditions since the start: counters over the whole time, sensors at its end."""
        elapsed_s = time.monotonic() - self.at_s
        energy, gpu_energy_mj = sensors.energy(self.root), nvml.energy_mj()
        load = self.load.load()
        gpu_mj = _increase(self.gpu_energy_mj, gpu_energy_mj)
        swapped = _increase(self.swapped_bytes, sensors.swapped_bytes())
        return Conditions(
            others_cores=load and load.others_cores,
            steal_cores=load and load.steal_cores,
            cpu_mhz=sensors.frequency_mhz(),
            cpu_c=sensors.temperature_c(self.root),
            cpu_w=sensors.mean_w(self.energy, energy, elapsed_s),
            swapped_bytes=None if swapped is None else int(swapped),
            gpu_mhz=nvml.clock_mhz(),
            gpu_c=nvml.temperature_c(),
            gpu_w=None if gpu_mj is None or elapsed_s <= 0 else gpu_mj / 1000 / elapsed_s,
        )


def _increase(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0, after - before)
