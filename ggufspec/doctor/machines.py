"""The machine: Python, processor, its governor and heat, memory, GPUs and disks."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from ggufspec import machine, paths, units
from ggufspec.doctor.finding import Finding, ok, remark
from ggufspec.machine import Gpu, Room, nvml, sampling

_HOT_C = 85.0
_LITTLE_MEMORY = 2 << 30
_LITTLE_DISK = 10 << 30  # a build takes about 2 GiB, a pair of models more
_BUSY_CORES = 0.5


def python() -> Finding:
    """Report the versions of Python and ggufspec."""
    return ok(
        "Python", f"{platform.python_version()} in {sys.prefix}; ggufspec {metadata.version('ggufspec')}"
    )


def threads(cores: int, busy: float, configured: int | None = None) -> Finding:
    """Compare the threads of a bench with the cores that other programs leave free.

    Args:
        cores: the physical cores that this process may use.
        busy: how many of them other programs keep busy now.
        configured: the threads in the settings; None for all cores.
    """
    count = configured or cores
    text = f"{count} of {cores} physical cores, {max(0.0, cores - busy):.1f} of them free"
    if count > cores:
        return remark("threads", f"{text}: more threads than cores", f"ggufspec config set threads {cores}")
    if count > cores - busy + _BUSY_CORES:
        fewer = max(1, int(cores - busy))
        return remark("threads", text, f"stop other programs, or measure with --threads {fewer}")
    return ok("threads", text)


def governor(root: Path = sampling.SYS) -> Finding:
    """Report the processor's frequency governor, and whether it keeps clocks low."""
    cpus = root / "devices/system/cpu"
    named = sorted({paths.text_of(file) for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")})
    drivers = {paths.text_of(file) for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_driver")}
    if not named:
        return ok("governor", "unknown, as on most virtual machines")
    text = f"{', '.join(named)} ({', '.join(sorted(drivers)) or 'unknown driver'})"
    governs_itself = drivers <= {"intel_pstate", "amd-pstate-epp"}  # their powersave reaches full speed, too
    if "performance" in named and len(named) == 1:
        return ok("governor", text)
    slow = "powersave" in named and not governs_itself
    text += ": clocks stay low" if slow else ": clocks change during a run"
    return remark("governor", text, "sudo cpupower frequency-set --governor performance")


def heat(root: Path = sampling.SYS) -> Finding:
    """Report the processor's temperature, and throttling since the machine started."""
    degrees = sampling.temperature_c(root)
    counts = [
        int(count)
        for file in root.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
        if (count := paths.text_of(file)).isdecimal()
    ]
    text = "no readable sensor" if degrees is None else f"{degrees:.0f} °C"
    if degrees is not None and degrees >= _HOT_C:
        return remark("heat", f"{text}: too hot to measure", "let it cool down, and clean the fans")
    if any(counts):
        text += f"; throttled by heat {units.counted(max(counts), 'time')} since the start"
        return remark("heat", text, "improve the cooling, or use fewer --threads")
    return ok("heat", text)


def memory(room: Room) -> Finding:
    """Report the free and the total memory."""
    text = f"{units.format_bytes(room.free_bytes)} of {units.format_bytes(room.total_bytes)} free"
    if room.free_bytes < _LITTLE_MEMORY:
        return remark("memory", text, "stop other programs; `ggufspec plan` shows what a pair needs")
    return ok("memory", text)


def gpus(present: Sequence[Gpu], hottest_c: float | None = None) -> Iterator[Finding]:
    """Report each GPU with its memory."""
    if not present:
        yield ok("GPU", "none: models run on the CPU")
    warm = "" if hottest_c is None else f"; hottest: {hottest_c:.0f} °C"
    for gpu in present:
        free, total = units.format_bytes(gpu.free_bytes), units.format_bytes(gpu.total_bytes)
        text = f"{gpu.name}, {free} of {total} free{warm}"
        if gpu.free_bytes < gpu.total_bytes // 2:
            yield remark("GPU", text, "nvidia-smi shows which programs use it")
        else:
            yield ok("GPU", text)


def gpu_state() -> Iterator[Finding]:
    """Report the state of NVIDIA's GPUs: driver, power, temperature, and throttling.

    Without such GPUs there is no finding.
    """
    readings = nvml.read_gpus()
    if not readings:
        return
    limit = nvml.power_limit_w()
    watts = [reading.watts for reading in readings if reading.watts is not None]
    degrees = [reading.celsius for reading in readings if reading.celsius is not None]
    text = ", ".join(
        (
            f"driver {nvml.driver_version() or 'unknown'}",
            *((f"{sum(watts):.0f} W" + (f" of {limit:.0f} W" if limit else ""),) if watts else ()),
            *((f"{max(degrees):.0f} °C",) if degrees else ()),
        )
    )
    slowed = sorted({reason for reading in readings for reason in reading.reasons or ()} & nvml.SLOWDOWNS)
    if slowed:
        text += f"; slowed down: {', '.join(slowed)}"
        yield remark("GPU state", text, "improve the cooling, and check the power supply")
    else:
        yield ok("GPU state", text)


def disk(name: str, folder: Path, variable: str) -> Finding:
    """Report the free disk space of a folder, which need not exist yet.

    Args:
        name: what the folder holds.
        folder: its path.
        variable: the environment variable that moves it.
    """
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    text = f"{units.format_bytes(free)} free at {folder}"
    if not os.access(existing, os.W_OK):
        return remark(name, f"{folder} is not writable", f"export {variable}=FOLDER")
    if free < _LITTLE_DISK:
        return remark(name, text, f"free disk space, or export {variable}=FOLDER")
    return ok(name, text)


def examine_machine(configured_threads: int | None) -> Iterator[Finding]:
    """Check this machine in its present state."""
    yield python()
    yield threads(machine.usable_cores(), machine.busy_cores(), configured_threads)
    yield governor()
    yield heat()
    yield memory(machine.memory())
    yield from gpu_state()
