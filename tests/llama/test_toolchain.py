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

Tool = Callable[[str, str], Path]
SMI = 'echo "NVIDIA H200, 9.0"; echo "NVIDIA A100-SXM4-80GB, 8.0"'
BROKEN = 'echo "NVIDIA-SMI has failed, because it could not reach the driver" >&2; exit 9'
OLD = f'case "$1" in --query*) {SMI} ;; *) echo "Driver Version: 550.54.15   CUDA Version: 12.4" ;; esac'
TOO_OLD = (
    "CPU, because no nvcc was found and the driver 550.54.15 (CUDA up to 12.4) is older than its wheels "
    "(update the driver, or install the CUDA 12.4 toolkit)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac has Metal")
@pytest.mark.parametrize(
    ("has_nvcc", "smi", "backend", "why"),
    [
        (True, SMI, Backend.CUDA, "CUDA, because {nvcc} and {gpus} were found"),
        (True, BROKEN, Backend.CPU, "CPU, because {nvcc} was found but no NVIDIA driver"),
        (
            False,
            SMI,
            Backend.CUDA,
            "CUDA, because {gpus} was found; its compiler comes from the package index",
        ),
        (False, OLD, Backend.CPU, TOO_OLD),
    ],
    ids=["both", "no driver", "no compiler", "an old driver"],
)
def test_a_backend_is_chosen(tool: Tool, has_nvcc: bool, smi: str, backend: Backend, why: str) -> None:
    nvcc = tool("nvcc", "") if has_nvcc else None
    tool("nvidia-smi", smi)
    if smi == BROKEN and toolchain.nvidia() is not None:
        pytest.skip("this machine has a driver beside the fake tool")
    assert choose_backend() == (backend, why.format(nvcc=nvcc, gpus="NVIDIA H200, NVIDIA A100-SXM4-80GB"))
    assert toolchain.cuda_architectures() == (() if smi == BROKEN else ("80", "90"))


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
def test_architectures_as_written(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, text: str, found: tuple[str, ...]
) -> None:
    tool("nvidia-smi", SMI)  # whatever GPUs are here
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
    nvcc = tool("cuda/bin/nvcc", "")
    assert toolchain.nvcc() is None
    monkeypatch.setenv("CUDA_PATH", str(nvcc.parents[1]))
    assert toolchain.nvcc() == nvcc


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
    assert seen["LC_ALL"] == "C.UTF-8"  # so that tools in Python can read paths beyond ASCII


def test_what_may_change_a_build_is_told_from_the_rest() -> None:
    names = """
        CC CXX CFLAGS CXXFLAGS LDFLAGS CMAKE_PREFIX_PATH CMAKE_BUILD_PARALLEL_LEVEL GGML_NATIVE LLAMA_CUDA
        CUDAARCHS CUDA_PATH NVCC_CCBIN LD_LIBRARY_PATH SOURCE_DATE_EPOCH CPATH MAKEFLAGS
    """
    shaping = dict.fromkeys(names.split(), "/a value")
    rest = dict.fromkeys(("PATH", "HOME", "CMAKE_TOKEN", "LANG", "CCX", "NIX_SSL_CERT_FILE"), "/x")
    assert toolchain.shaping(shaping | rest) == shaping


def test_what_is_set_otherwise_than_for_a_build_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O2")
    recorded = toolchain.shaping()
    assert toolchain.differences(recorded) == ()
    assert toolchain.differences(None) == ()
    others = {name: recorded[name] for name in recorded if name != "CXXFLAGS"}
    (only,) = toolchain.differences(others)
    assert only == "it was built without CXXFLAGS, and now CXXFLAGS is -O2"
    monkeypatch.delenv("CXXFLAGS")
    (only,) = toolchain.differences(recorded)
    assert only == "it was built with CXXFLAGS=-O2, and now CXXFLAGS is not set"


def test_the_cuda_compiler_comes_first(tool: Tool, tmp_path: Path) -> None:
    chosen = tmp_path / "cuda" / "bin" / "nvcc"  # of a toolkit
    for given, compiler in ((None, tool("nvcc", "")), (chosen, chosen)):
        environment = toolchain.environment(Backend.CUDA, history=False, cuda_compiler=given)
        assert environment["PATH"].startswith(f"{compiler.parent}{os.pathsep}")
        assert environment["CUDACXX"] == str(compiler)


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
