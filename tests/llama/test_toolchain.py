"""What a machine offers to a build, asked of fake tools on PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggufspec.choices import Backend
from ggufspec.errors import BuildError
from ggufspec.llama.build import toolchain
from ggufspec.llama.build.toolchain import Gpus, choose_backend
from ggufspec.llama.install.environment import cpu_features
from tests.support import fakes

Tool = Callable[[str, str], Path]
SMI = 'echo "NVIDIA H200, 9.0"; echo "NVIDIA A100-SXM4-80GB, 8.0"'


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Write fake tools into the only folder on PATH."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "_CUDA_HOMES", ())
    for name in ("CUDA_PATH", "CUDA_HOME", "CUDACXX", "CUDAARCHS"):
        monkeypatch.delenv(name, raising=False)

    def write(name: str, script: str) -> Path:
        return fakes.script(folder / name, f"{script}\n")

    return write


linux = pytest.mark.skipif(sys.platform != "linux", reason="a Mac has Metal, and no /proc")


@linux
def test_cuda_needs_compiler_and_driver(tool: Tool) -> None:
    nvcc = tool("nvcc", "")
    tool("nvidia-smi", SMI)
    backend, why = choose_backend()
    assert backend is Backend.CUDA
    assert why == f"CUDA, because {nvcc} and NVIDIA H200, NVIDIA A100-SXM4-80GB were found"
    assert toolchain.cuda_architectures() == ("80", "90")


@linux
def test_a_compiler_without_a_driver_means_cpu(tool: Tool) -> None:
    tool("nvcc", "")
    tool("nvidia-smi", 'echo "NVIDIA-SMI has failed, because it could not reach the driver" >&2; exit 9')
    if toolchain.nvidia() is not None:
        pytest.skip("this machine has a driver beside the fake tool")
    backend, why = choose_backend()
    assert backend is Backend.CPU
    assert why.endswith("was found but no NVIDIA driver")
    assert toolchain.cuda_architectures() == ()


@linux
def test_a_driver_without_a_compiler_means_cuda_by_wheels(tool: Tool) -> None:
    tool("nvidia-smi", SMI)
    backend, why = choose_backend()
    assert backend is Backend.CUDA
    assert why == (
        "CUDA, because NVIDIA H200, NVIDIA A100-SXM4-80GB was found; "
        "its compiler comes from the package index"
    )


@linux
def test_a_driver_too_old_for_the_wheels_means_cpu(tool: Tool) -> None:
    table = 'echo "Driver Version: 550.54.15   CUDA Version: 12.4"'
    tool("nvidia-smi", f'case "$1" in --query*) {SMI} ;; *) {table} ;; esac')
    backend, why = choose_backend()
    assert backend is Backend.CPU
    assert "no nvcc was found and the driver 550.54.15 (CUDA up to 12.4) is older than its wheels" in why
    assert "install the CUDA 12.4 toolkit" in why


def test_cudaarchs_wins_over_the_gpus_that_are_here(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("nvidia-smi", SMI)
    monkeypatch.setenv("CUDAARCHS", "75;86")
    assert toolchain.cuda_architectures() == ("75", "86")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("86,89,90", ("86", "89", "90")),
        ("8.6; 9.0", ("86", "90")),
        (" 90 ,90", ("90",)),
        ("120a-real,90-virtual", ("120a-real", "90-virtual")),
        ("native", ("native",)),
        ("all-major", ("all-major",)),
    ],
)
def test_architectures_as_written(monkeypatch: pytest.MonkeyPatch, text: str, found: tuple[str, ...]) -> None:
    assert toolchain.cuda_architectures(text) == found
    monkeypatch.setenv("CUDAARCHS", text)
    assert toolchain.cuda_architectures() == found
    assert toolchain.cuda_architectures("75") == ("75",)  # the option wins over the environment


@pytest.mark.parametrize("text", ["", " , ", "h100", "9", "sm_90", "90x", "90,-"])
def test_what_is_no_architecture(text: str) -> None:
    with pytest.raises(BuildError) as caught:
        toolchain.cuda_architectures(text)
    assert "--cuda-arch 86,89,90" in str(caught.value.hint)


def test_a_gpu_of_unknown_capability_is_no_architecture(tool: Tool) -> None:
    tool("nvidia-smi", 'echo "Some GPU, [N/A]"; echo "NVIDIA T4, 7.5"')
    assert toolchain.nvidia() == Gpus(names=("NVIDIA T4",), architectures=("75",))


def test_the_compiler_named_by_cuda_path_is_found(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = tool("nvcc", "").rename(Path(os.environ["PATH"]).parent / "nvcc")
    home = nvcc.parent / "cuda"
    (home / "bin").mkdir(parents=True)
    nvcc.rename(home / "bin" / "nvcc")
    assert toolchain.nvcc() is None
    monkeypatch.setenv("CUDA_PATH", str(home))
    assert toolchain.nvcc() == home / "bin" / "nvcc"


def test_an_old_cmake_is_passed_over_for_the_one_of_the_environment(tool: Tool) -> None:
    old = tool("cmake", "echo cmake version 3.16.3")
    assert toolchain.cmake() != old
    new = tool("cmake", "echo cmake version 4.0.1")
    assert toolchain.cmake() == new


def test_ninja_comes_from_the_environment_where_path_has_none(tool: Tool) -> None:
    assert toolchain.tool("ninja", hint="").is_file()
    with pytest.raises(BuildError, match="no-such-tool") as caught:
        toolchain.tool("no-such-tool", hint="install it")
    assert caught.value.hint == "install it"


@pytest.mark.parametrize(
    ("line", "features"),
    [
        ("flags\t\t: fpu sse4_2 avx avx2 fma f16c bmi2", {"SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2"}),
        ("flags : avx512f avx512cd avx512bw avx512dq avx512vl avx512_vnni", {"AVX512", "AVX512_VNNI"}),
        ("flags : avx512f avx512vbmi amx_tile amx_int8", {"AVX512_VBMI", "AMX_TILE", "AMX_INT8"}),
        ("Features\t: fp asimd asimddp i8mm", {"DOTPROD", "I8MM"}),
        ("", set()),
    ],
)
def test_processor_features(line: str, features: set[str]) -> None:
    assert cpu_features(f"processor : 0\n{line}\npower management:\n") == features


def test_jobs_and_git_fit_the_machine() -> None:
    assert 1 <= toolchain.default_jobs() <= (os.cpu_count() or 1)
    assert toolchain.environment(Backend.CPU, history=False)["GIT_DIR"] == os.devnull
    assert toolchain.environment(Backend.CPU, history=True).get("GIT_DIR") == os.environ.get("GIT_DIR")


def test_no_secret_reaches_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {"HF_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "PIP_INDEX_URL": "https://me:pw@index.example"}
    for name, value in {**secrets, "CXXFLAGS": "-O1"}.items():
        monkeypatch.setenv(name, value)
    seen = toolchain.environment(Backend.CPU, history=False)
    assert not secrets.keys() & seen.keys()
    assert seen["CXXFLAGS"] == "-O1"


def test_what_may_change_a_build_is_told_from_the_rest() -> None:
    shaping = {
        "CC": "clang",
        "CXX": "clang++",
        "CFLAGS": "-O1",
        "CXXFLAGS": "-O1",
        "LDFLAGS": "-s",
        "CMAKE_PREFIX_PATH": "/opt",
        "CMAKE_BUILD_PARALLEL_LEVEL": "1",
        "GGML_NATIVE": "OFF",
        "LLAMA_CUDA": "1",
        "CUDAARCHS": "90",
        "CUDA_PATH": "/opt/cuda",
        "NVCC_CCBIN": "g++-12",
        "LD_LIBRARY_PATH": "/opt/lib",
        "SOURCE_DATE_EPOCH": "0",
        "CPATH": "/opt/include",
        "MAKEFLAGS": "-j1",
    }
    rest = {"PATH": "/bin", "HOME": "/root", "CMAKE_TOKEN": "x", "LANG": "C", "CCX": "no"}
    rest |= {"NIX_SSL_CERT_FILE": "/certificates"}
    assert toolchain.shaping(shaping | rest) == shaping


def test_what_is_set_otherwise_than_for_a_build_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O2")
    recorded = toolchain.shaping()
    assert toolchain.differences(recorded) == ()
    assert toolchain.differences(None) == ()
    (only,) = toolchain.differences(recorded | {"CXXFLAGS": "-O1"})
    assert only.startswith("it was built with CXXFLAGS=-O1, and now CXXFLAGS is -O2;")
    (only,) = toolchain.differences({name: recorded[name] for name in recorded if name != "CXXFLAGS"})
    assert only.startswith("it was built without CXXFLAGS, and now CXXFLAGS is -O2;")
    monkeypatch.delenv("CXXFLAGS")
    (only,) = toolchain.differences(recorded)
    assert only.startswith("it was built with CXXFLAGS=-O2, and now CXXFLAGS is not set;")


def test_the_cuda_compiler_comes_first(tool: Tool) -> None:
    nvcc = tool("nvcc", "")
    environment = toolchain.environment(Backend.CUDA, history=False)
    assert environment["PATH"].startswith(f"{nvcc.parent}{os.pathsep}")
    assert environment["CUDACXX"] == str(nvcc)


def test_the_cuda_compiler_of_a_toolkit_comes_before_that_on_path(tool: Tool, tmp_path: Path) -> None:
    tool("nvcc", "")
    chosen = tmp_path / "cuda" / "bin" / "nvcc"
    environment = toolchain.environment(Backend.CUDA, history=False, cuda_compiler=chosen)
    assert environment["PATH"].startswith(f"{chosen.parent}{os.pathsep}")
    assert environment["CUDACXX"] == str(chosen)


def test_the_compiler_cache_forgets_where_a_build_lay(tool: Tool, tmp_path: Path) -> None:
    assert toolchain.compiler_cache() is None
    sccache = tool("sccache", "")
    assert toolchain.compiler_cache() == sccache
    ccache = tool("ccache", "")
    assert toolchain.compiler_cache() == ccache
    environment = toolchain.environment(Backend.CPU, history=False, base=tmp_path)
    assert (environment["CCACHE_BASEDIR"], environment["CCACHE_NOHASHDIR"]) == (str(tmp_path), "1")
    plain = toolchain.environment(Backend.CPU, history=False)
    assert plain.get("CCACHE_BASEDIR") == os.environ.get("CCACHE_BASEDIR")


def test_a_wrapped_toolkit_is_found(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("nvcc", 'exec /somewhere/else/nvcc "$@"')
    assert toolchain.cuda_home() is None
    header = tmp_path / "cuda" / "include" / "cuda_runtime.h"
    header.parent.mkdir(parents=True)
    header.touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert toolchain.cuda_home() == tmp_path / "cuda"


def test_hip_is_asked_for_its_compiler(tool: Tool) -> None:
    tool("hipconfig", "case $1 in -l) echo /opt/rocm/llvm/bin ;; -R) echo /opt/rocm ;; esac")
    environment = toolchain.environment(Backend.HIP, history=False)
    assert environment["HIPCXX"] == "/opt/rocm/llvm/bin/clang"
    assert environment["HIP_PATH"] == "/opt/rocm"
    assert "HIPCXX" not in toolchain.environment(Backend.CPU, history=False)


def test_tools_that_are_python_scripts_can_read_paths_beyond_ascii() -> None:
    assert toolchain.environment(Backend.CPU, history=True)["LC_ALL"] == "C.UTF-8"
