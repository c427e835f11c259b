"""What this machine is, and its state while something runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import psutil
import pytest

from ggufspec import machine, proc
from ggufspec.domain import MachineDetails
from ggufspec.errors import ChildCrashedError
from ggufspec.machine import LoadWatch, Watch, sampling
from ggufspec.machine.hardware import details
from ggufspec.machine.sampling import busy_cores

BURN_S = 0.3
BURN = f"""
import sys, time
while time.process_time() < {BURN_S}: pass
print("burnt", flush=True)
sys.stdin.read()
"""
DETACHED = "import os\nif os.fork(): os._exit(0)\nos.setsid()\n" + BURN


@contextmanager
def _burnt(code: str) -> Iterator[psutil.Popen]:
    """A process that has used 0.3 s of the processor since we began, and lives on."""
    pipe = subprocess.PIPE
    with psutil.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout.readline() == "burnt\n"
        yield process
        process.stdin.close()
        process.stdout.read()  # a detached one is gone, too, when nobody can write any more


def _spent(before: LoadWatch) -> tuple[float, float]:
    """Processor seconds of us and of others since then."""
    now = LoadWatch.start(before.family)
    ours = now.own_s - before.own_s
    return ours, now.all_s - before.all_s - ours


def _in_child(code: str, then: str = "", **streams: str) -> str:
    """Return code that runs other code in a child of its own."""
    passed = "".join(f", {name}=subprocess.{stream}" for name, stream in streams.items())
    return f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}]{passed}){then}"


@pytest.mark.parametrize(
    "code",
    [
        BURN,
        _in_child(BURN),
        _in_child(BURN, "; print('burnt', flush=True); sys.stdin.read()", stdin="DEVNULL", stdout="PIPE"),
    ],
    ids=["a child", "a grandchild", "a grandchild that has ended"],
)
def test_what_descendants_use_is_ours(code: str) -> None:
    before = LoadWatch.start()
    with _burnt(code) as child:
        ours, _ = _spent(before)
        assert child.is_running()
        assert BURN_S - 0.02 <= ours < 2 * BURN_S


def test_a_child_that_ends_is_counted_once() -> None:
    with _burnt(BURN):
        before = LoadWatch.start()
    ours, _ = _spent(before)
    assert 0 <= ours < BURN_S / 2


def test_a_grandchild_that_loses_its_parent_stays_ours() -> None:
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}]); sys.stdin.read(1)"
    with _burnt(parent) as child:
        before = LoadWatch.start()
        assert len(before.family) == 2
        child.kill()
        child.wait()
        ours, _ = _spent(before)
        assert -0.02 <= ours < BURN_S / 2


def test_a_foreign_process_counts_as_others_and_our_own_does_not() -> None:
    watch = LoadWatch.start()
    with _burnt(DETACHED):
        ours, others = _spent(watch)
        load = watch.load()
    assert ours < BURN_S / 2
    assert others >= BURN_S - 0.05
    assert load.others_cores > 0.5
    watch = LoadWatch.start()
    with _burnt(BURN):
        ours, others = _spent(watch)
        load, elapsed = watch.load(), time.monotonic() - watch.at_s
    assert ours >= BURN_S - 0.02
    assert load.others_cores == pytest.approx(others / elapsed, abs=0.3)


@pytest.mark.parametrize(("ago_s", "waits_s"), [(0.0, 0.3), (0.2, 0.1), (1.0, 0.0), (60.0, 0.3)])
def test_a_look_waits_for_the_unseen(monkeypatch: pytest.MonkeyPatch, ago_s: float, waits_s: float) -> None:
    waited: list[float] = []
    watch = LoadWatch.start()
    monkeypatch.setattr(time, "monotonic", lambda: watch.at_s)
    monkeypatch.setattr(time, "sleep", waited.append)
    busy_cores(replace(watch, at_s=watch.at_s - ago_s))
    assert waited == [pytest.approx(waits_s)]


def test_a_moment_is_too_short_to_see_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch.start()
    monkeypatch.setattr(time, "monotonic", lambda: watch.load.at_s + 0.04)  # a busy machine takes longer
    conditions = watch.conditions()
    assert (conditions.others_cores, conditions.steal_cores) == (None, None)


def _package(folder: Path, used_uj: int, *, name: str = "package-0", range_uj: int = 262_143_328_850) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, value in (("name", name), ("energy_uj", used_uj), ("max_energy_range_uj", range_uj)):
        (folder / file).write_text(f"{value}\n")
    return folder


def _watts(root: Path, elapsed_s: float = 10.0, **later: int) -> float | None:
    before = sampling.energy(root)
    for name, used_uj in later.items():
        _package(root / "class/powercap" / name.replace("_", ":").replace("rapl", "intel-rapl"), used_uj)
    return sampling.mean_w(before, sampling.energy(root), elapsed_s)


def test_power_is_the_energy_of_all_packages_over_time(tmp_path: Path) -> None:
    domains = tmp_path / "class/powercap"
    _package(domains / "intel-rapl:0", 1_000_000)
    _package(domains / "intel-rapl:1", 7_000_000, name="package-1")
    _package(domains / "intel-rapl:0:0", 5, name="core")
    _package(domains / "intel-rapl:2", 5, name="psys")
    (domains / "intel-rapl").mkdir()
    assert _watts(tmp_path, rapl_0=301_000_000, rapl_1=207_000_000, rapl_0_0=99, rapl_9=1) is None
    assert _watts(tmp_path, rapl_0=601_000_000, rapl_1=407_000_000) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("before", "after", "elapsed_s", "watts"),
    [
        (262_143_328_850 - 100_000_000, 200_000_000, 10.0, 30.0),  # it began anew
        (0, 1_000_000, 500.0, 0.002),
        (0, 2_000_000, 600.0, None),  # time enough for it to begin anew twice
    ],
)
def test_an_energy_counter_may_start_over(
    tmp_path: Path, before: int, after: int, elapsed_s: float, watts: float | None
) -> None:
    _package(tmp_path / "class/powercap/intel-rapl:0", before)
    found = _watts(tmp_path, elapsed_s, rapl_0=after)
    assert found == (None if watts is None else pytest.approx(watts))


def test_one_unreadable_package_makes_the_power_unknown(tmp_path: Path) -> None:
    domains = tmp_path / "class/powercap"
    _package(domains / "intel-rapl:0", 1)
    assert sampling.energy(tmp_path) is not None
    (_package(domains / "intel-rapl:1", 1) / "energy_uj").unlink()  # root reads what it may not, but not this
    (domains / "intel-rapl:1/energy_uj").mkdir()
    assert sampling.energy(tmp_path) is None
    assert sampling.energy(tmp_path / "elsewhere") is None


def test_the_hottest_sensor_of_the_processor_counts(tmp_path: Path) -> None:
    for number, (chip, readings) in enumerate(
        {"nvme": (70_000,), "coretemp": (51_000, 63_500, 48_000), "acpitz": (90_000,)}.items()
    ):
        folder = tmp_path / f"class/hwmon/hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{chip}\n")
        for place, reading in enumerate(readings, start=1):
            (folder / f"temp{place}_input").write_text(f"{reading}\n")
            (folder / f"temp{place}_crit").write_text("100000\n")
    assert sampling.temperature_c(tmp_path) == 63.5
    assert sampling.temperature_c(tmp_path / "elsewhere") is None


def test_conditions_cover_the_time_since_the_start(tmp_path: Path) -> None:
    package = _package(tmp_path / "class/powercap/intel-rapl:0", 0)
    watch = Watch.start(tmp_path)
    with _burnt(BURN):
        _package(package, 3_000_000)
        least_s = time.monotonic() - watch.at_s
        conditions = watch.conditions()
        most_s = time.monotonic() - watch.at_s
    assert 3.0 / most_s <= conditions.cpu_w <= 3.0 / least_s
    assert conditions.cpu_c is None
    assert conditions.others_cores is not None
    assert conditions.swapped_bytes is None or conditions.swapped_bytes >= 0
    assert conditions.cpu_mhz is None or conditions.cpu_mhz > 100


def test_the_machine_is_described() -> None:
    here = machine.snapshot(("CUDA0: NVIDIA H200",))
    assert here.gpus == ("CUDA0: NVIDIA H200",)
    assert 1 <= here.cores == machine.usable_cores() <= (os.cpu_count() or 1)
    assert here.memory_bytes > 1 << 28
    assert here.cpu
    room = machine.memory()
    assert 0 < room.free_bytes < room.total_bytes == here.memory_bytes


# What the system says about a machine, from files of many kinds of machines


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


def _described(root: Path, files: Mapping[str, str]) -> MachineDetails:
    """Return the details of a machine that has these files."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return details(root)


def test_a_server_is_described(tmp_path: Path) -> None:
    cpus = {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(2)}
    files = {
        "proc/cpuinfo": X86.format(flag=""),
        "proc/meminfo": "MemTotal: 100 kB\nSwapTotal:  2048 kB\n",
        "proc/self/cgroup": "0::/user.slice/mine.scope\n",
        "sys/fs/cgroup/user.slice/mine.scope/memory.max": "max\n",
        "sys/fs/cgroup/user.slice/memory.max": "8589934592\n",
        "sys/devices/system/cpu/smt/active": "1\n",
        "sys/devices/system/node/node0/meminfo": "",
        "sys/devices/system/node/node1/meminfo": "",
        "etc/os-release": 'ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    }
    described = _described(tmp_path, files | cpus)
    assert described.kernel
    assert replace(described, kernel=None) == MachineDetails(
        vendor="GenuineIntel",
        family="6",
        model="106",
        stepping="6",
        microcode="0xd0003a5",
        governor="performance",
        smt=True,
        numa_nodes=2,
        distribution="Debian GNU/Linux 12 (bookworm)",
        swap_bytes=2 << 20,
        memory_limit_bytes=8 << 30,
    )


def test_cores_that_differ_are_all_named(tmp_path: Path) -> None:
    governors = {"cpu0": "schedutil", "cpu1": "performance"}
    files = {f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor": g for cpu, g in governors.items()}
    described = _described(tmp_path, {"proc/cpuinfo": ARM, **files})
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
    described = _described(tmp_path, files)
    assert (described.container, described.hypervisor) == (container, hypervisor)


@pytest.mark.parametrize(("text", "limit"), [("9223372036854771712", None), ("4294967296", 4 << 30)])
def test_older_control_groups(text: str, limit: int | None, tmp_path: Path) -> None:
    tree = {"proc/self/cgroup": "4:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": text}
    assert _described(tmp_path, tree).memory_limit_bytes == limit


def test_files_that_say_nothing_or_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    nothing = {field.name: None for field in fields(MachineDetails)}
    assert vars(replace(details(tmp_path), kernel=None)) == nothing
    for name in ("etc/os-release", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").write_bytes(os.urandom(4096))
    files = {"proc/meminfo": "SwapTotal: many kB", "sys/devices/system/cpu/smt/active": "?"}
    described = _described(tmp_path, files | {"proc/self/cgroup": "0::/../../elsewhere\n"})
    assert (described.swap_bytes, described.smt, described.distribution) == (None, None, None)


def test_details_are_stable_and_do_not_make_another_machine(tmp_path: Path) -> None:
    here = machine.snapshot()
    assert machine.snapshot().details == details()
    assert replace(here, details=details(tmp_path)) == here


def test_a_mac_says_its_processor_by_sysctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("ggufspec.machine.hardware.ROOT", tmp_path)
    monkeypatch.setattr(proc, "capture", lambda *_, **__: (None, "Apple M3 Max\n", ""))
    assert machine.snapshot().cpu == "Apple M3 Max"
    monkeypatch.setattr(proc, "capture", mock.Mock(side_effect=ChildCrashedError("no such program")))
    assert machine.snapshot().cpu
