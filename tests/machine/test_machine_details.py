"""What the system says about a machine, from files of many kinds of machines."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest

from ggufspec import machine, proc
from ggufspec.domain import MachineDetails
from ggufspec.errors import ChildCrashedError
from ggufspec.machine.hardware import details

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz
stepping\t: 6
microcode\t: 0xd0003a5
flags\t\t: fpu vme {flag}lahf_lm

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
stepping\t: 6
microcode\t: 0xd0003a5
"""
ARM = """processor\t: 0
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd05
CPU revision\t: 0

processor\t: 1
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: 0xd0a
CPU revision\t: 0
"""


def _tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_a_server_is_described(tmp_path: Path) -> None:
    cpus = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(2)}
    described = details(
        _tree(
            tmp_path,
            {
                "proc/cpuinfo": X86.format(flag=""),
                "proc/meminfo": "MemTotal: 100 kB\nSwapTotal:  2048 kB\n",
                "proc/self/cgroup": "0::/user.slice/mine.scope\n",
                "sys/fs/cgroup/user.slice/mine.scope/memory.max": "max\n",
                "sys/fs/cgroup/user.slice/memory.max": "8589934592\n",
                "sys/devices/system/cpu/smt/active": "1\n",
                "sys/devices/system/node/node0/meminfo": "",
                "sys/devices/system/node/node1/meminfo": "",
                "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
                **cpus,
            },
        )
    )
    assert (described.vendor, described.family, described.model, described.stepping) == (
        "GenuineIntel",
        "6",
        "106",
        "6",
    )
    assert (described.microcode, described.governor, described.smt) == ("0xd0003a5", "performance", True)
    assert (described.numa_nodes, described.swap_bytes, described.memory_limit_bytes) == (2, 2 << 20, 8 << 30)
    assert described.distribution == "Debian GNU/Linux 12 (bookworm)"
    assert (described.container, described.hypervisor) == (None, None)
    assert described.kernel


def test_cores_that_differ_are_all_named(tmp_path: Path) -> None:
    governors = {"cpu0": "schedutil", "cpu1": "performance"}
    files = {f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor": g for cpu, g in governors.items()}
    described = details(_tree(tmp_path, {"proc/cpuinfo": ARM, **files}))
    assert (described.vendor, described.family, described.model) == ("0x41", "8", "0xd05, 0xd0a")
    assert (described.governor, described.microcode, described.smt) == ("performance, schedutil", None, None)


@pytest.mark.parametrize(
    ("files", "container", "hypervisor"),
    [
        ({".dockerenv": ""}, "docker", None),
        ({"run/.containerenv": ""}, "podman", None),
        ({"run/systemd/container": "lxc\n"}, "lxc", None),
        ({".dockerenv": "", "proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1\n"}, "kubernetes", None),
        ({"proc/cpuinfo": X86.format(flag="hypervisor ")}, None, "of unknown make"),
        (
            {
                "proc/cpuinfo": X86.format(flag="hypervisor "),
                "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
                "sys/class/dmi/id/product_name": "m6i.large\n",
            },
            None,
            "Amazon EC2 m6i.large",
        ),
        ({"sys/class/dmi/id/sys_vendor": "Dell Inc.\n", "proc/cpuinfo": X86.format(flag="")}, None, None),
        ({"sys/hypervisor/type": "xen\n"}, None, "xen"),
        ({"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n"}, None, "WSL"),
    ],
)
def test_containers_and_virtual_machines(
    files: Mapping[str, str], container: str | None, hypervisor: str | None, tmp_path: Path
) -> None:
    described = details(_tree(tmp_path, files))
    assert (described.container, described.hypervisor) == (container, hypervisor)


@pytest.mark.parametrize(("text", "limit"), [("9223372036854771712", None), ("4294967296", 4 << 30)])
def test_older_control_groups(text: str, limit: int | None, tmp_path: Path) -> None:
    tree = {"proc/self/cgroup": "4:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": text}
    assert details(_tree(tmp_path, tree)).memory_limit_bytes == limit


def test_a_machine_that_says_nothing_is_no_error(tmp_path: Path) -> None:
    described = details(tmp_path)
    assert {field.name for field in fields(MachineDetails) if getattr(described, field.name) is not None} <= {
        "kernel"
    }


def test_files_that_are_no_text_or_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    tree = _tree(tmp_path, {"proc/meminfo": "SwapTotal: many kB", "sys/devices/system/cpu/smt/active": "?"})
    (tree / "proc/cpuinfo").write_bytes(os.urandom(4096))
    (tree / "etc/os-release").mkdir(parents=True)
    (tree / "proc/self").mkdir()
    (tree / "proc/self/cgroup").write_text("0::/../../elsewhere\n")
    described = details(tree)
    assert (described.swap_bytes, described.smt, described.distribution) == (None, None, None)


def test_this_machine_is_described_in_no_time() -> None:
    machine.snapshot()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        details()
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5  # seconds; files of a few kB
    assert machine.snapshot().details == details()


def test_details_do_not_make_another_machine(tmp_path: Path) -> None:
    here = machine.snapshot()
    assert replace(here, details=details(tmp_path)) == here


def test_a_mac_says_its_processor_by_sysctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("ggufspec.machine.hardware.ROOT", tmp_path)
    ended = proc.Completed(
        argv=(), returncode=0, signal=None, timed_out=False, wall_s=0.0, peak_rss_bytes=None
    )
    monkeypatch.setattr(proc, "capture", lambda *_, **__: (ended, "Apple M3 Max\n", ""))
    assert machine.snapshot().cpu == "Apple M3 Max"

    def refuse(*_: object, **__: object) -> None:
        raise ChildCrashedError("no such program")

    monkeypatch.setattr(proc, "capture", refuse)
    assert machine.snapshot().cpu
