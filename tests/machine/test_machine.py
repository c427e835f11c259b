"""Which GPUs are here, and what the machine's state was while something ran."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path

import psutil
import pytest

from ggufspec import machine, proc
from ggufspec.domain import MachineDetails
from ggufspec.errors import ChildCrashedError
from ggufspec.machine import Gpu, LoadWatch, Watch, sampling
from ggufspec.machine.hardware import details
from ggufspec.machine.sampling import busy_cores, descendants
from tests.support import fakes

MIB = 1 << 20
BURN_S = 0.3
BURN = f"""
import sys, time
while time.process_time() < {BURN_S}: pass
print("burnt", flush=True)
sys.stdin.read()
"""
DETACHED = "import os\nif os.fork(): os._exit(0)\nos.setsid()\n" + BURN
SMI = """#!/bin/sh
[ "$1" = --query-gpu=uuid,memory.total,memory.free,name ] || exit 2
printf '%s\\n' 'GPU-aaaa, 81559, 80982, NVIDIA H100 80GB HBM3'
printf '%s\\n' 'GPU-bbbb, [N/A], [N/A], NVIDIA GB10'
printf '%s\\n' 'GPU-cccc, 24564, 1000, NVIDIA GeForce RTX 4090'
"""
H100 = Gpu(name="NVIDIA H100 80GB HBM3", total_bytes=81559 * MIB, free_bytes=80982 * MIB)
RTX = Gpu(name="NVIDIA GeForce RTX 4090", total_bytes=24564 * MIB, free_bytes=1000 * MIB)


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


def test_a_child_that_lives_on_is_ours() -> None:
    before = LoadWatch.start()
    with _burnt(BURN) as child:
        ours, _ = _spent(before)
        assert child.is_running()
        assert BURN_S - 0.02 <= ours < 2 * BURN_S


def test_a_grandchild_is_ours() -> None:
    before = LoadWatch.start()
    with _burnt(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])"):
        assert BURN_S - 0.02 <= _spent(before)[0] < 2 * BURN_S


def test_a_grandchild_that_has_ended_was_ours() -> None:
    run = (
        f"subprocess.run([sys.executable, '-c', {BURN!r}], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)"
    )
    before = LoadWatch.start()
    with _burnt(f"import subprocess, sys; {run}; print('burnt', flush=True); sys.stdin.read()"):
        assert BURN_S - 0.02 <= _spent(before)[0] < 2 * BURN_S


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


@pytest.mark.parametrize("proc", ["/proc", "/nonexistent"])
def test_descendants_are_found_with_and_without_the_kernels_list(proc: str) -> None:
    with _burnt(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])") as child:
        found = {process.pid for process in descendants(proc)}
        assert found == {child.pid, *(process.pid for process in child.children())}
        assert len(found) == 2


def test_watching_takes_less_than_10_ms() -> None:
    Watch.start().conditions()
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        Watch.start().conditions()
        spent.append(time.perf_counter() - started)
    assert min(spent) < 0.010


def _package(folder: Path, used_uj: int, *, name: str = "package-0", range_uj: int = 262_143_328_850) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file, value in (("name", name), ("energy_uj", used_uj), ("max_energy_range_uj", range_uj)):
        (folder / file).write_text(f"{value}\n")
    return folder


def _watts(root: Path, started_s: float = 10.0, **later: int) -> float | None:
    before = sampling.energy(root)
    for name, used_uj in later.items():
        _package(root / "class/powercap" / name.replace("_", ":").replace("rapl", "intel-rapl"), used_uj)
    return sampling.mean_w(before, sampling.energy(root), started_s)


def test_power_is_the_energy_of_all_packages_over_time(tmp_path: Path) -> None:
    domains = tmp_path / "class/powercap"
    _package(domains / "intel-rapl:0", 1_000_000)
    _package(domains / "intel-rapl:1", 7_000_000, name="package-1")
    _package(domains / "intel-rapl:0:0", 5, name="core")
    _package(domains / "intel-rapl:2", 5, name="psys")
    (domains / "intel-rapl").mkdir()
    assert _watts(tmp_path, rapl_0=301_000_000, rapl_1=207_000_000, rapl_0_0=99, rapl_9=1) is None
    assert _watts(tmp_path, rapl_0=601_000_000, rapl_1=407_000_000) == pytest.approx(50.0)


def test_an_energy_counter_may_start_over(tmp_path: Path) -> None:
    _package(tmp_path / "class/powercap/intel-rapl:0", 262_143_328_850 - 100_000_000)
    assert _watts(tmp_path, rapl_0=200_000_000) == pytest.approx(30.0)
    _package(tmp_path / "class/powercap/intel-rapl:0", 0)
    assert _watts(tmp_path, 500.0, rapl_0=1_000_000) == pytest.approx(0.002)
    assert _watts(tmp_path, 600.0, rapl_0=2_000_000) is None


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


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake nvidia-smi, the only program on the PATH."""
    program = fakes.script(tmp_path / "bin" / "nvidia-smi", SMI)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, (H100, RTX)),
        ("0", (H100,)),
        ("2,0", (RTX, H100)),
        ("1", ()),
        ("GPU-cc", (RTX,)),
        ("0,7,2", (H100,)),
        ("-1", ()),
        ("", ()),
    ],
)
def test_nvidia_smi_is_read_as_cuda_would(
    smi: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: tuple[Gpu, ...]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert machine.nvidia_smi() == expected


@pytest.mark.parametrize(
    "body", ["echo 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9", "echo hello"]
)
def test_an_nvidia_smi_that_fails_finds_nothing(smi: Path, body: str) -> None:
    smi.write_text(f"#!/bin/sh\n{body}\n")
    assert machine.nvidia_smi() == ()
    smi.unlink()
    assert machine.nvidia_smi() == ()


def test_the_machine_is_described() -> None:
    here = machine.snapshot(("CUDA0: NVIDIA H200",))
    assert here.gpus == ("CUDA0: NVIDIA H200",)
    assert 1 <= here.cores == machine.usable_cores() <= (os.cpu_count() or 1)
    assert here.memory_bytes > 1 << 28
    assert here.cpu
    room = machine.memory((H100,))
    assert 0 < room.free_bytes < room.total_bytes == here.memory_bytes
    assert room.gpus == (H100,)


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
