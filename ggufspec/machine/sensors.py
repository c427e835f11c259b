"""The processor's frequency, temperature and energy, and swapped bytes; None for what cannot be read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

SYS = Path("/sys")
_CHIPS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
_MOST_W = 500.0  # of one processor package


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
        if domain.name.count(":") > 1 or not (_read(domain / "name") or "").startswith("package"):
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
    chips = [chip for chip in (root / "class/hwmon").glob("*") if _read(chip / "name") in _CHIPS]
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
    text = _read(file)
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
