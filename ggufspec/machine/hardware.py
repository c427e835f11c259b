"""This machine's name, processor, memory and ports, and how fast it reads its memory.

Linux answers from files below ``root``, which tests replace. What a system does not say is None.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

from ggufspec import paths, proc
from ggufspec.domain import Machine, MachineDetails
from ggufspec.errors import ChildCrashedError
from ggufspec.machine import nvml
from ggufspec.machine.nvml import Gpu

ROOT = Path("/")
_FIELDS = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
    "microcode": ("microcode",),
}
"""Field -> its names in /proc/cpuinfo, on x86 and on ARM."""

_GOVERNORS = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"
_CONTAINERS = {"docker": "docker", "kubepods": "kubernetes", "containerd": "containerd", "lxc": "lxc"}
"""Part of a control group's path -> who made it."""

_NO_LIMIT = 1 << 60  # bytes; control groups without a limit say less than 2^63


def details(root: Path = ROOT) -> MachineDetails:
    """Return what the system says about this machine; reads small files only, and never fails."""
    cpuinfo = _cpuinfo(root)
    governors = {paths.text_of(file) for file in root.glob(_GOVERNORS)} - {""}
    swap_kb = _find(r"^SwapTotal:\s+(\d+) kB", root / "proc/meminfo")
    return MachineDetails(
        **{name: _join(cpuinfo, keys) for name, keys in _FIELDS.items()},
        governor=", ".join(sorted(governors)) or None,
        smt={"1": True, "0": False}.get(paths.text_of(root / "sys/devices/system/cpu/smt/active")),
        numa_nodes=len([*root.glob("sys/devices/system/node/node[0-9]*")]) or None,
        kernel=" ".join(filter(None, (platform.release(), platform.version()))) or None,
        distribution=_find(r'^PRETTY_NAME="?(.*?)"?$', root / "etc/os-release"),
        container=_container(root),
        hypervisor=_hypervisor(root, cpuinfo),
        swap_bytes=None if swap_kb is None else int(swap_kb) << 10,
        memory_limit_bytes=min(_memory_limits(root), default=None),
    )


def _cpuinfo(root: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the distinct values of each field over all processors; cores of one machine can differ."""
    values: dict[str, dict[str, None]] = {}
    for line in paths.text_of(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        values.setdefault(key.strip(), {})[value.strip()] = None
    return {key: tuple(distinct) for key, distinct in values.items()}


def _join(cpuinfo: Mapping[str, tuple[str, ...]], keys: Iterable[str]) -> str | None:
    """Return the values of a field, by the first of its names that is there; None without one."""
    values = next((cpuinfo[key] for key in keys if key in cpuinfo), ())
    return ", ".join(filter(None, values)) or None


def _find(pattern: str, file: Path) -> str | None:
    """Return the group of a pattern in a small file; None where it is not there."""
    match = re.search(pattern, paths.text_of(file), re.MULTILINE)
    return match[1] if match else None


def _container(root: Path) -> str | None:
    """Return the kind of container that this process runs in; None if it shows no sign of one."""
    if _exists(root / "run/.containerenv"):
        return "podman"
    named = paths.text_of(root / "run/systemd/container")
    if named:
        return named
    groups = paths.text_of(root / "proc/self/cgroup")
    maker = next((maker for part, maker in _CONTAINERS.items() if part in groups), None)
    return maker or ("docker" if _exists(root / ".dockerenv") else None)


def _hypervisor(root: Path, cpuinfo: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the maker of the virtual machine, which may be unknown; None where nothing shows one."""
    if "microsoft" in paths.text_of(root / "proc/sys/kernel/osrelease").lower():
        return "WSL"
    xen = paths.text_of(root / "sys/hypervisor/type")
    if xen:
        return xen
    if not any("hypervisor" in flags.split() for flags in cpuinfo.get("flags", ())):
        return None
    dmi = root / "sys/class/dmi/id"
    named = (paths.text_of(dmi / file) for file in ("sys_vendor", "product_name"))
    return " ".join(dict.fromkeys(filter(None, named))) or "of unknown make"


def _memory_limits(root: Path) -> Iterable[int]:
    """Yield the limits of the control groups that this process is in, of version 2 or 1."""
    top = root / "sys/fs/cgroup"
    group_folder = top / (_find(r"^0::/(.*)$", root / "proc/self/cgroup") or "")
    folders = [folder for folder in (group_folder, *group_folder.parents) if folder.is_relative_to(top)]
    for file in (*(folder / "memory.max" for folder in folders), top / "memory/memory.limit_in_bytes"):
        limit = paths.text_of(file)
        if limit.isdecimal() and int(limit) < _NO_LIMIT:
            yield int(limit)


def _exists(file: Path) -> bool:
    with suppress(OSError):
        return file.exists()
    return False


_TIMEOUT_S = 5.0
_BLOCK_BYTES = 32 << 20  # of each thread; together more than caches hold
_MOST_THREADS = 16
_ROUNDS = 4


def snapshot(gpus: tuple[str, ...] = ()) -> Machine:
    """Describe this machine; ``gpus`` are the devices that llama.cpp reports."""
    named = _find(r"^model name\s*:[ \t]*(.*?)\s*$", ROOT / "proc/cpuinfo")
    return Machine(
        hostname=platform.node(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=named or _apple_name() or platform.processor() or platform.machine(),
        cores=usable_cores(),
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_driver=nvml.driver_version(),
        gpu_bytes=nvml.total_bytes(),
        details=details(),
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """Memory for models: the host's total, the part that is free, and the GPUs that may be used.

    The system's file cache counts as free.
    """

    total_bytes: int
    free_bytes: int
    gpus: tuple[Gpu, ...] = ()


def memory(gpus: tuple[Gpu, ...] = ()) -> Room:
    """Return the memory available now; ``gpus`` are those that the llama.cpp in use can use."""
    host = psutil.virtual_memory()
    return Room(total_bytes=host.total, free_bytes=host.available, gpus=gpus)


def usable_cores() -> int:
    """Return how many physical cores this process may use, at least 1.

    Hyper-threads are not counted: with llama.cpp's spinning barriers they slow a run down.
    """
    allowed = usable_threads()
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def usable_threads() -> int:
    """Return how many hardware threads this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _apple_name() -> str | None:
    """Return the processor's name as macOS has it; Python says only ``arm`` there."""
    if platform.system() != "Darwin":
        return None
    try:
        _, out, _ = proc.capture(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"], timeout_s=_TIMEOUT_S)
    except ChildCrashedError:
        return None
    return out.strip() or None


def count_listeners(port: int) -> int | None:
    """Return how many sockets listen on a TCP port of this machine; None where the system does not tell."""
    try:
        connections = psutil.net_connections("tcp4")
    except psutil.AccessDenied:  # macOS tells only root
        return None
    listening = [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]
    return sum(address[1:] == (port,) for address in listening)  # host, port


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Return the size of the processor's largest cache; None where the system does not state it.

    Linux does: /sys/devices/system/cpu/cpu0/cache, Documentation/ABI/testing/sysfs-devices-system-cpu. A
    processor with several such caches reads its own one fastest, so they are not added.
    """
    sizes = root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")
    texts = (file.read_text(encoding="utf-8").strip() for file in sizes)
    kibibytes = (int(text.removesuffix("K")) for text in texts if text.removesuffix("K").isdecimal())
    return max((number << 10 for number in kibibytes), default=None)


def read_bandwidth(threads: int) -> float:
    """Return bytes/s of reading memory with some threads at once; takes some 0.1 s.

    It is the fastest of several rounds, as other programs only slow them.
    """
    import numpy as np  # most commands need none of it

    blocks = [np.ones(_BLOCK_BYTES // 8) for _ in range(max(1, min(threads, _MOST_THREADS)))]
    with ThreadPoolExecutor(len(blocks)) as pool:

        def read_all() -> float:
            started = perf_counter()
            for _ in pool.map(np.sum, blocks):
                pass
            return len(blocks) * _BLOCK_BYTES / (perf_counter() - started)

        return max(read_all() for _ in range(_ROUNDS))
