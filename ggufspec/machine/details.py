"""What the system says about this machine: processor, kernel, container or virtual machine, memory limits.

Linux answers from files below ``root``, which tests replace. What a system does not say is None.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ggufspec import paths
from ggufspec.domain import MachineDetails

ROOT = Path("/")
_FIELDS = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "stepping": ("stepping", "CPU revision"),
    "microcode": ("microcode",),
}
"""Field -> its names in /proc/cpuinfo, on x86 and on ARM."""

_CONTAINERS = {"docker": "docker", "kubepods": "kubernetes", "containerd": "containerd", "lxc": "lxc"}
"""Part of a control group's path -> who made it."""

_NO_LIMIT = 1 << 60  # bytes; control groups without a limit say less than 2^63


def details(root: Path = ROOT) -> MachineDetails:
    """Return what the system says about this machine; reads small files only, and never fails."""
    cpuinfo = _cpuinfo(root)
    return MachineDetails(
        **{name: _join(cpuinfo, keys) for name, keys in _FIELDS.items()},
        governor=_governor(root),
        smt=_smt(root),
        numa_nodes=len([*root.glob("sys/devices/system/node/node[0-9]*")]) or None,
        kernel=" ".join(filter(None, (platform.release(), platform.version()))) or None,
        distribution=_distribution(root),
        container=_container(root),
        hypervisor=_hypervisor(root, cpuinfo),
        swap_bytes=_swap_bytes(root),
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


def _governor(root: Path) -> str | None:
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    return ", ".join(sorted({paths.text_of(file) for file in files} - {""})) or None


def _smt(root: Path) -> bool | None:
    return {"1": True, "0": False}.get(paths.text_of(root / "sys/devices/system/cpu/smt/active"))


def _distribution(root: Path) -> str | None:
    name = re.search(r'^PRETTY_NAME="?(.*?)"?$', paths.text_of(root / "etc/os-release"), re.MULTILINE)
    return name[1] if name else None


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


def _swap_bytes(root: Path) -> int | None:
    total = re.search(r"^SwapTotal:\s+(\d+) kB", paths.text_of(root / "proc/meminfo"), re.MULTILINE)
    return int(total[1]) << 10 if total else None


def _memory_limits(root: Path) -> Iterable[int]:
    """Yield the limits of the control groups that this process is in, of version 2 or 1."""
    group = re.search(r"^0::/(.*)$", paths.text_of(root / "proc/self/cgroup"), re.MULTILINE)
    top = root / "sys/fs/cgroup"
    group_folder = top / group[1] if group else top
    folders = [folder for folder in (group_folder, *group_folder.parents) if folder.is_relative_to(top)]
    for file in (*(folder / "memory.max" for folder in folders), top / "memory/memory.limit_in_bytes"):
        limit = paths.text_of(file)
        if limit.isdecimal() and int(limit) < _NO_LIMIT:
            yield int(limit)


def _exists(file: Path) -> bool:
    with suppress(OSError):
        return file.exists()
    return False
