"""The machine: Python, processor, its governor and heat, memory, GPUs and disks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from ggufspec import machine, units
from ggufspec.doctor.finding import Finding, ok, remark
from ggufspec.machine import Gpu, Room, nvml, sensors

_HOT_C = 85.0
_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 10 << 30  # a build takes about 2 GiB, a pair of models more
_BUSY_CORES = 0.5


def python() -> Finding:
    """Say which Python runs which ggufspec."""
    return ok(
        "Python", f"{platform.python_version()} in {sys.prefix}; ggufspec {metadata.version('ggufspec')}"
    )


def threads(cores: int, busy: float, configured: int | None = None) -> Finding:
    """Compare the threads of a bench with the cores that nobody else uses.

    Args:
        cores: the physical cores that we may use.
        busy: how many of them others kept busy just now.
        configured: the threads that the settings name; all cores without it.
    """
    wanted = configured or cores
    said = f"{wanted} of {cores} physical cores, {max(0.0, cores - busy):.1f} of them free"
    if wanted > cores:
        return remark("threads", f"{said}: more threads than cores", f"ggufspec config set threads {cores}")
    if wanted > cores - busy + _BUSY_CORES:
        fewer = max(1, int(cores - busy))
        return remark("threads", said, f"stop other programs, or measure with --threads {fewer}")
    return ok("threads", said)


def governor(root: Path = sensors.SYS) -> Finding:
    """Say how the processor chooses its clock, and whether it is held back."""
    cpus = root / "devices/system/cpu"
    named = sorted({_read(file) for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")})
    drivers = {_read(file) for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_driver")}
    if not named:
        return ok("governor", "unknown, as on most virtual machines")
    said = f"{', '.join(named)} ({', '.join(sorted(drivers)) or 'unknown driver'})"
    governs_itself = drivers <= {"intel_pstate", "amd-pstate-epp"}  # powersave goes to full speed there, too
    if "performance" in named and len(named) == 1:
        return ok("governor", said)
    slow = "powersave" in named and not governs_itself
    said += ": clocks stay low" if slow else ": clocks change during a run"
    return remark("governor", said, "sudo cpupower frequency-set --governor performance")


def heat(root: Path = sensors.SYS) -> Finding:
    """Say how hot the processor is, and whether heat has slowed it down since it was started."""
    degrees = sensors.temperature_c(root)
    counts = [
        int(text)
        for file in root.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
        if (text := _read(file)).isdecimal()
    ]
    said = "no readable sensor" if degrees is None else f"{degrees:.0f} °C"
    if degrees is not None and degrees >= _HOT_C:
        return remark("heat", f"{said}: too hot to measure", "let it cool down; clean the fans")
    if any(counts):
        said += f"; slowed down by heat {units.counted(max(counts), 'time')} since the start"
        return remark("heat", said, "improve the cooling, or use fewer --threads")
    return ok("heat", said)


def memory(room: Room) -> Finding:
    """Say how much memory there is, and how much of it is free."""
    said = f"{units.format_bytes(room.free_bytes)} of {units.format_bytes(room.total_bytes)} free"
    if room.free_bytes < _LITTLE_MEMORY:
        return remark("memory", said, "stop other programs; `ggufspec plan` shows what a pair needs")
    return ok("memory", said)


def gpus(found: Sequence[Gpu], hottest_c: float | None = None) -> Iterator[Finding]:
    """Say which GPUs there are, one finding each, with their memory."""
    if not found:
        yield ok("GPU", "none: everything runs on the CPU")
    warm = "" if hottest_c is None else f"; hottest: {hottest_c:.0f} °C"
    for gpu in found:
        free, total = units.format_bytes(gpu.free_bytes), units.format_bytes(gpu.total_bytes)
        said = f"{gpu.name}, {free} of {total} free{warm}"
        if gpu.free_bytes < gpu.total_bytes // 2:
            yield remark("GPU", said, "nvidia-smi shows which programs use it")
        else:
            yield ok("GPU", said)


def gpu_state() -> Iterator[Finding]:
    """Say how NVIDIA's GPUs are doing: driver, power, heat, and what slows them down.

    Nothing without them; where there seem to be some and the package that reads them is missing, say so.
    """
    readings = nvml.read_gpus()
    if not readings:
        if shutil.which("nvidia-smi") and not nvml.installed():
            said = "clocks, power, temperature, memory and energy of GPUs are not recorded"
            yield remark("GPU state", said, "pip install 'ggufspec[gpu]'")
        return
    limit = nvml.power_limit_w()
    watts = [each.watts for each in readings if each.watts is not None]
    degrees = [each.celsius for each in readings if each.celsius is not None]
    said = ", ".join(
        (
            f"driver {nvml.driver_version() or 'unknown'}",
            *((f"{sum(watts):.0f} W" + (f" of {limit:.0f} W" if limit else ""),) if watts else ()),
            *((f"{max(degrees):.0f} °C",) if degrees else ()),
        )
    )
    slowed = sorted({reason for each in readings for reason in each.reasons or ()} & nvml.SLOWDOWNS)
    if slowed:
        said += f"; slowed down: {', '.join(slowed)}"
        yield remark("GPU state", said, "improve the cooling, and check the power supply")
    else:
        yield ok("GPU state", said)


def disk(name: str, folder: Path, variable: str) -> Finding:
    """Say how much room a folder has, whether it is there yet or not.

    Args:
        name: what lies in it.
        folder: where.
        variable: the environment variable that moves it.
    """
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    said = f"{units.format_bytes(free)} free at {folder}"
    if not os.access(there, os.W_OK):
        return remark(name, f"{folder} is not writable", f"export {variable}=FOLDER")
    if free < _LITTLE_DISK:
        return remark(name, said, f"free disk space, or export {variable}=FOLDER")
    return ok(name, said)


def now(configured_threads: int | None) -> Iterator[Finding]:
    """Look at this machine, as it is now."""
    yield python()
    yield threads(machine.usable_cores(), machine.busy_cores(), configured_threads)
    yield governor()
    yield heat()
    yield memory(machine.memory())
    yield from gpu_state()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
