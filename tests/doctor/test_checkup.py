"""The doctor: each check on machines that are not this one, and all of them on this one."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from huggingface_hub import constants

from ggufspec import paths
from ggufspec.doctor import machines, models, programs
from ggufspec.doctor.finding import Checkup, Finding, FindingStatus, install_command, missing, ok, render
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.install import installs
from ggufspec.machine import Gpu, Room
from ggufspec.modelfiles import hub
from ggufspec.options import settings
from tests.support import fakes, shell
from tests.support.hub_server import Hub

NVCC = Path("/usr/local/cuda/bin/nvcc")
OK, REMARK = FindingStatus.OK, FindingStatus.REMARK
H200 = Gpu(name="NVIDIA H200", total_bytes=139 << 30, free_bytes=138 << 30)


@pytest.fixture(autouse=True)
def no_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of the user's environment into the report, and no request out of the machine."""
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home / "config"))
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for key in settings.KEYS:
        monkeypatch.delenv(settings.PREFIX + key.upper(), raising=False)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a shell and nothing to build with."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for tool in ("sh", "sleep", "kill"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.mark.parametrize(
    ("nvcc", "supports", "toolkit", "status", "said", "mend"),
    [
        (None, None, None, OK, "no NVIDIA toolkit or driver", None),
        (NVCC, None, None, REMARK, "no working driver", "install NVIDIA's driver"),
        (NVCC, (12, 4), (12, 8), OK, f"(CUDA up to 12.4); builds use CUDA 12.8 ({NVCC})", None),
        (None, (13, 0), None, OK, "builds use the wheels of CUDA 13.0", None),
        (NVCC, (13, 0), None, OK, f"as {NVCC} does not suffice", None),
        (None, (12, 4), BuildError("it is old", "update it"), REMARK, "it is old", "update it"),
    ],
)
def test_the_cuda_toolkit_is_the_one_that_builds_use(
    monkeypatch: pytest.MonkeyPatch,
    nvcc: Path | None,
    supports: cuda.Release | None,
    toolkit: cuda.Release | BuildError | None,
    status: FindingStatus,
    said: str,
    mend: str | None,
) -> None:
    def choose(architectures: Sequence[str]) -> Toolkit | None:
        assert architectures == ("90",)
        if isinstance(toolkit, BuildError):
            raise toolkit
        return None if toolkit is None else Toolkit(nvcc=NVCC, release=toolkit, home=None)

    driver = None if supports is None else cuda.Driver(version="550.54", supports=supports)
    gpus = None if supports is None else toolchain.Gpus(names=("NVIDIA H200",), architectures=("90",))
    monkeypatch.setattr(toolchain, "nvcc", lambda: nvcc)
    monkeypatch.setattr(toolchain, "nvidia", lambda: gpus)
    monkeypatch.setattr(cuda, "find_driver", lambda: driver)
    monkeypatch.setattr(programs.cuda_toolkit, "choose", choose)
    finding = programs.nvidia()
    assert (finding.status, finding.fix) == (status, mend)
    assert said in finding.text


@pytest.mark.parametrize(
    ("cores", "busy", "configured", "status", "said"),
    [
        (8, 0.1, None, OK, "8 of 8 physical cores, 7.9 of them free"),
        (8, 3.0, None, REMARK, "5.0 of them free"),
        (8, 3.0, 4, OK, "4 of 8"),
        (2, 2.5, None, REMARK, "0.0 of them free"),
        (4, 0.0, 16, REMARK, "more threads than cores"),
    ],
)
def test_threads_against_free_cores(
    cores: int, busy: float, configured: int | None, status: FindingStatus, said: str
) -> None:
    finding = machines.threads(cores, busy, configured)
    assert finding.status is status
    assert said in finding.text


@pytest.mark.parametrize(
    ("governor", "driver", "status", "said"),
    [
        ("performance", "acpi-cpufreq", OK, "performance"),
        ("powersave", "acpi-cpufreq", REMARK, "clocks stay low"),
        ("powersave", "intel_pstate", REMARK, "clocks change during a run"),
        ("schedutil", "amd-pstate", REMARK, "clocks change"),
        (None, "", OK, "unknown"),
    ],
)
def test_governors(
    tmp_path: Path, governor: str | None, driver: str, status: FindingStatus, said: str
) -> None:
    for number in range(2 if governor else 0):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
        (folder / "scaling_driver").write_text(f"{driver}\n")
    finding = machines.governor(tmp_path)
    assert (finding.status, finding.fix is None) == (status, status is OK)
    assert said in finding.text


@pytest.mark.parametrize(
    ("degrees", "throttled", "status"),
    [(45, 0, OK), (92, 0, REMARK), (45, 7, REMARK)],
)
def test_heat(tmp_path: Path, degrees: int, throttled: int, status: FindingStatus) -> None:
    chip, counts = tmp_path / "class/hwmon/hwmon0", tmp_path / "devices/system/cpu/cpu0/thermal_throttle"
    for folder in (chip, counts):
        folder.mkdir(parents=True)
    (chip / "name").write_text("k10temp\n")
    (chip / "temp1_input").write_text(f"{degrees}000\n")
    (counts / "core_throttle_count").write_text(f"{throttled}\n")
    finding = machines.heat(tmp_path)
    assert finding.status is status
    assert f"{degrees} °C" in finding.text
    assert ("7 times" in finding.text) == bool(throttled)


def test_memory_gpus_and_disks(tmp_path: Path) -> None:
    assert machines.memory(Room(total_bytes=8 << 30, free_bytes=1 << 30)).status is REMARK
    assert machines.memory(Room(total_bytes=8 << 30, free_bytes=6 << 30)).status is OK
    full = Gpu(name="NVIDIA A10", total_bytes=24 << 30, free_bytes=1 << 30)
    assert [each.status for each in machines.gpus((H200, full))] == [OK, REMARK]
    assert [each.text for each in machines.gpus(())] == ["none: models run on the CPU"]
    assert str(tmp_path / "not/yet") in machines.disk("data", tmp_path / "not/yet", "GGUFSPEC_DATA").text
    proc = machines.disk("data", Path("/proc/nowhere"), "GGUFSPEC_DATA")
    assert (proc.status, proc.fix) in {
        (REMARK, "export GGUFSPEC_DATA=FOLDER"),
        (REMARK, "free disk space, or export GGUFSPEC_DATA=FOLDER"),
    }


def test_installs_and_their_abilities(llama: Path) -> None:
    found = installs.probe(llama, "PATH")
    assert found is not None
    (fine,) = programs.installs((found,), ())
    assert fine.status is OK
    assert "plain, speculative" in fine.text
    assert [each.fix for each in programs.installs((), ())] == ["ggufspec build"]
    finding = programs.library((found,))
    assert (finding.status, finding.fix) == (REMARK, "ggufspec build")
    assert "has no shared library beside its programs" in finding.text
    assert programs.library(()).text == "no --engine inprocess: no llama.cpp was found"


def test_missing_tools_come_with_what_mends_them(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs.compiler()
    assert (found.status, found.text) == (FindingStatus.MISSING, "no C++ compiler was found")
    assert found.fix == "install g++"
    fakes.script(bare / "dnf", "")
    assert install_command("g++") == "sudo dnf install g++"
    monkeypatch.setenv("CXX", "g++-99")
    assert programs.compiler() == missing("compiler", "CXX is g++-99, which does not exist", "unset CXX")
    fakes.script(bare / "c++", "echo 'c++ (Debian) 12.2.0'")
    monkeypatch.delenv("CXX")
    assert programs.compiler().text == f"c++ (Debian) 12.2.0 ({bare / 'c++'})"


def ask(endpoint: str, token: str | None = None, *, offline: bool = False) -> Finding:
    access = hub.Access(endpoint=endpoint, token=token, offline=offline)
    return models.reachability(access, models.HubRequest(access).answer())


def test_the_hub_says_who_is_logged_in(loopback: Hub) -> None:
    assert ask(loopback.url, "hf_good").text.endswith("as ada")
    assert ask(loopback.url, "hf_bad").fix == "hf auth login"
    assert "not logged in" in ask(loopback.url).text
    assert "not checked: offline" in ask(loopback.url, offline=True).text


def test_a_hub_that_is_not_there_or_never_answers_is_a_remark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        access = hub.Access(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        question, asked = models.HubRequest(access), time.monotonic()
        finding = models.reachability(access, question.answer(0.2))
        assert time.monotonic() - asked < models.PATIENCE_S < 3
    assert (finding.status, "did not answer" in finding.text) == (REMARK, True)
    finding = ask(access.endpoint)
    assert (finding.status, "cannot be reached" in finding.text) == (REMARK, True)


def test_the_whole_report_on_this_machine(llama: Path, home: Path) -> None:
    snapshot = home / "hub" / "models--me--Small-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "small.gguf").write_bytes(b"x" * 1000)
    done = shell.ggufspec("doctor", "--offline", "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    found = {each["name"]: each for each in report["findings"]}
    assert report["can_run"] is True
    assert {*found} == {
        *("settings", "Python", "threads", "governor", "heat", "memory", "GPU", "builds", "data"),
        *("compiler", "CMake", "Ninja", "CUDA", "llama.cpp", "library", "Hub", "models", "pairs", "results"),
        "Hub cache",
    }
    assert all(set(each) == {"name", "status", "text", "fix"} for each in report["findings"])
    assert str(llama) in found["llama.cpp"]["text"]
    assert found["models"]["text"].startswith("1 GGUF files, 1000 B")
    assert found["pairs"]["text"].endswith(": demo, demo-eagle3, demo-mtp, demo-dflash")
    assert "none yet" in found["results"]["text"]


def test_findings_are_lines_on_standard_output(llama: Path) -> None:
    done = shell.here("doctor", "--offline")
    lines = [line for line in done.stdout.splitlines() if not line.strip().startswith("→")]
    assert {line.split()[0] for line in lines} <= {"ok", "remark", "missing"}
    assert done.stderr == "a bench can run: ggufspec bench\n"


def test_no_llama_and_no_way_to_build_one_is_exit_code_1(bare: Path) -> None:
    done = shell.here("doctor", "--offline")
    assert done.returncode == 1
    assert "error: no bench can run here: no C++ compiler was found" in done.stderr
    assert "missing  llama.cpp" in done.stdout


def test_no_llama_but_a_way_to_build_one_is_exit_code_0() -> None:
    done = shell.here("doctor", "--offline")
    assert (done.returncode, done.stderr) == (0, "a bench can run after: ggufspec build\n")


def test_a_named_install_that_is_none(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(tmp_path))
    done = shell.here("doctor", "--offline")
    assert done.returncode == 1
    assert f"GGUFSPEC_LLAMA is {tmp_path}" in done.stdout
    assert "→ unset GGUFSPEC_LLAMA" in done.stdout
    monkeypatch.delenv("GGUFSPEC_LLAMA")
    (home / "config").mkdir()
    paths.config_file().write_text(f'llama = "{tmp_path}"\n')
    assert "→ ggufspec config unset llama" in shell.here("doctor", "--offline").stdout
    llama = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    done = shell.here("doctor", "--offline", "--llama", str(llama))
    assert str(llama) in done.stdout
    assert "unset" not in done.stdout
    assert f"--llama is {home}" in shell.here("doctor", "--offline", "--llama", str(home)).stdout


def test_wrong_settings_are_a_finding_and_no_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").mkdir()
    paths.config_file().write_text("engin = 'server'\n")
    done = shell.done("doctor", "--offline")
    assert f"{paths.config_file()}:1: there is no key 'engin'; did you mean engine?" in done.stdout
    paths.config_file().unlink()
    monkeypatch.setenv("GGUFSPEC_ENGIN", "server")
    assert "ggufspec does not know GGUFSPEC_ENGIN" in shell.here("doctor", "--offline").stdout


def test_sentences_are_folded_under_their_beginning_and_commands_are_not() -> None:
    command = "ggufspec build --backend cuda --cuda-arch 90 --version 0.3.36 --jobs 16 --source ~/llama.cpp"
    findings = (missing("llama.cpp", "a rather long sentence " * 6, command), ok("threads", "2"))
    checkup = Checkup(findings=findings, can_run=True)
    first, *rest = render(checkup, "text", width=80).splitlines()
    assert first.startswith("missing  llama.cpp  a rather long sentence")
    assert all(len(line) <= 80 for line in (first, *rest) if command not in line)
    assert rest[0].startswith(" " * 20 + "sentence a rather")
    assert rest[-2] == " " * 20 + f"→ {command}"
    assert len(render(checkup, "text").splitlines()) == 3
