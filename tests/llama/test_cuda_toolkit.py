"""Which CUDA toolkit a build takes, and what it says where nothing fits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain, toolkit
from ggufspec.llama.build.toolkit import Toolkit, fits, provide
from ggufspec.llama.cuda import Driver
from tests.support import cuda_parts, fakes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's wheels are for Linux")
Tool = Callable[[str, str], Path]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Write fake tools into the only folder on PATH; CUDA 13.0 lies in the cache as pip leaves it there."""
    if toolchain.nvidia() is not None:
        pytest.skip("this machine has a driver beside the fake one")
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "_CUDA_HOMES", ())
    monkeypatch.setattr(toolkit, "_DEBIAN", tmp_path / "nowhere")
    for name in ("CUDA_PATH", "CUDA_HOME", "CUDACXX", "CUDAHOSTCXX", "NVCC_CCBIN"):
        monkeypatch.delenv(name, raising=False)
    cuda_parts.install(paths.cache_dir() / "cuda" / "13.0", gcc=15)

    def write(name: str, script: str) -> Path:
        return fakes.script(folder / name, f"{script}\n")

    return write


def own(tool: Tool, release: str, architectures: str, *, headers: Sequence[str]) -> Path:
    """Install a toolkit of the machine's own, behind a link on PATH."""
    nvcc = tool("cuda/bin/nvcc", cuda_parts.nvcc(release, architectures))
    (nvcc.parent.parent.parent / "nvcc").symlink_to(nvcc)
    for header in headers:
        path = nvcc.parent.parent / "include" / header
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return nvcc


WHOLE = ("cuda_runtime.h", "cublas_v2.h")


def driver(tool: Tool, supports: str, capability: str = "9.0") -> None:
    table = f"| NVIDIA-SMI 580.65   Driver Version: 580.65.06   CUDA Version: {supports}  |"
    tool("nvidia-smi", f'case "$1" in --query*) echo "NVIDIA X, {capability}" ;; *) echo "{table}" ;; esac')


def take(tmp_path: Path, *architectures: str) -> Toolkit:
    work = provide(architectures, tmp_path / "work", tmp_path / "log")
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Toolkit = end.value
            return found


def refusal(tmp_path: Path, *architectures: str) -> tuple[str, str]:
    with pytest.raises(BuildError) as caught:
        take(tmp_path, *architectures)
    assert "\n" not in caught.value.message
    return caught.value.message, str(caught.value.hint)


def test_without_nvcc_the_toolkit_is_made_of_wheels(tool: Tool, tmp_path: Path) -> None:
    found = take(tmp_path, "90")
    assert found.home == tmp_path / "work" / "cuda"
    assert found.nvcc == found.home / "bin" / "nvcc"
    assert found.release == (13, 0)
    assert found.wheels is not None
    assert found.links_driver is (cuda.find_driver_library() is not None)


def test_a_whole_toolkit_of_the_machine_comes_first(tool: Tool, tmp_path: Path) -> None:
    nvcc = own(tool, "12.4", "80 90", headers=WHOLE)
    found = take(tmp_path, "90")
    assert (found.nvcc.resolve(), found.release, found.wheels) == (nvcc, (12, 4), None)


@pytest.mark.parametrize(
    ("release", "headers", "architecture"),
    [
        ("13.0", ("cuda_runtime.h",), "90"),  # no cuBLAS
        ("13.0", (), "90"),
        ("12.4", WHOLE, "120"),  # older than the GPU wants
        ("10.2", WHOLE, "90"),  # older than llama.cpp wants
    ],
)
def test_a_toolkit_that_lacks_something_is_passed_over(
    tool: Tool, tmp_path: Path, release: str, headers: Sequence[str], architecture: str
) -> None:
    own(tool, release, "80 90", headers=headers)
    assert take(tmp_path, architecture).wheels is not None


def test_no_cuda_13_for_gpus_that_it_has_given_up(tool: Tool, tmp_path: Path) -> None:
    own(tool, "12.9", "61 90", headers=WHOLE)
    assert take(tmp_path, "61").release == (12, 9)
    assert not fits((13, 0), ("61",))
    assert fits((13, 0), ("75", "120a-real", "native", "all-major"))


def test_a_driver_older_than_the_wheels(tool: Tool, tmp_path: Path) -> None:
    driver(tool, "12.4")
    said, mend = refusal(tmp_path, "90")
    assert "the driver 580.65.06 (CUDA up to 12.4) is older than the wheels, which start at CUDA 13.0" in said
    assert "install the CUDA 12.4 toolkit" in mend


def test_a_driver_older_than_the_toolkit(tool: Tool, tmp_path: Path) -> None:
    driver(tool, "12.4")
    own(tool, "13.1", "80 90", headers=WHOLE)
    said, mend = refusal(tmp_path, "90")
    assert "(CUDA up to 12.4) is older than the toolkit, CUDA 13.1" in said
    assert mend == "update the driver, or use a toolkit of CUDA 12.x, at best 12.4"


def test_minor_versions_go_together(tool: Tool, tmp_path: Path) -> None:
    driver(tool, "12.2")
    own(tool, "12.8", "80 90", headers=WHOLE)
    assert take(tmp_path, "90").release == (12, 8)


@pytest.mark.parametrize(("architecture", "way"), [("61", "an older"), ("130", "a newer")])
def test_an_architecture_that_nvcc_does_not_know(
    tool: Tool, tmp_path: Path, architecture: str, way: str
) -> None:
    said, mend = refusal(tmp_path, "90", architecture)
    assert said == (
        f"CUDA 13.0 does not compile for architecture {architecture}; it knows 75, 80, 86, 90, 120"
    )
    assert mend == f"name one of them with --cuda-arch, or use {way} CUDA toolkit"


def test_native_needs_a_gpu(tool: Tool, tmp_path: Path) -> None:
    said, mend = refusal(tmp_path, "native")
    assert "this machine has no GPU" in said
    assert "--cuda-arch 90" in mend
    driver(tool, "13.0")
    assert take(tmp_path, "native").release == (13, 0)


def test_gcc_newer_than_the_toolkit_allows(tool: Tool, tmp_path: Path) -> None:
    tool("g++", "echo 16.1.0")
    said, mend = refusal(tmp_path, "90")
    assert said == "CUDA 13.0 supports GCC up to 15, but g++ is GCC 16.1.0"
    assert mend == "apt install g++-15; then set CUDAHOSTCXX=g++-15"
    older = tool("g++-13", "echo 13.3.0")
    assert refusal(tmp_path, "90")[1] == f"set CUDAHOSTCXX={older}"


def test_the_compiler_that_cudahostcxx_names_counts(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("g++", "echo 16.1.0")
    tool("g++-13", "echo 13.3.0")
    monkeypatch.setenv("CUDAHOSTCXX", "g++-13")
    assert take(tmp_path, "90").release == (13, 0)
    tool("clang++-21", "echo 21.1.0")
    monkeypatch.setenv("CUDAHOSTCXX", "clang++-21")
    assert take(tmp_path, "90").release == (13, 0)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("Driver Version: 550.54.15    CUDA Version: 12.4", Driver(version="550.54.15", supports=(12, 4))),
        (
            "Driver Version: 590.44.01    CUDA UMD Version: 13.1",
            Driver(version="590.44.01", supports=(13, 1)),
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", None),
    ],
)
def test_what_the_driver_says(tool: Tool, table: str, found: Driver | None) -> None:
    tool("nvidia-smi", f'echo "{table}"')
    assert cuda.find_driver() == found


def test_the_drivers_library_is_found_where_the_loader_is_sent(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    assert cuda.find_driver_library({"LD_LIBRARY_PATH": f":{tmp_path}"}) == tmp_path / "libcuda.so.1"
