"""Which CUDA toolkit a build takes, and what it says where nothing fits."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.build import toolchain, toolkit
from ggufspec.llama.build.toolkit import Toolkit, fits, provide
from ggufspec.llama.cuda import (
    Driver,
    Wheels,
    assemble,
    copy_libraries,
    find_wheels,
    provide_wheels,
    wheels_suit,
)
from ggufspec.steps import BuildProgress, finish
from tests.support import cuda_parts, fakes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="CUDA's wheels are for Linux")
Tool = Callable[[str, str], Path]


@pytest.fixture
def machine(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """A machine without a toolkit; CUDA 13.0 lies in the cache as pip leaves it there."""
    if toolchain.nvidia() is not None:
        pytest.skip("this machine has a driver beside the fake one")
    monkeypatch.setattr(toolkit, "_DEBIAN", tmp_path / "nowhere")
    cuda_parts.install(paths.cache_dir() / "cuda" / "13.0", gcc=15)
    return tool


def own(tool: Tool, release: str, architectures: str, *headers: str) -> Path:
    """Install a toolkit of the machine's own, behind a link on PATH."""
    nvcc = tool("cuda/bin/nvcc", cuda_parts.nvcc(release, architectures))
    (nvcc.parents[2] / "nvcc").symlink_to(nvcc)
    (nvcc.parents[1] / "include").mkdir()
    for header in headers:
        (nvcc.parents[1] / "include" / header).touch()
    return nvcc


WHOLE = ("cuda_runtime.h", "cublas_v2.h")


def driver(tool: Tool, supports: str) -> None:
    table = f"| NVIDIA-SMI 580.65   Driver Version: 580.65.06   CUDA Version: {supports}  |"
    tool("nvidia-smi", f'case "$1" in --query*) echo "NVIDIA X, 9.0" ;; *) echo "{table}" ;; esac')


def take(tmp_path: Path, *architectures: str) -> Toolkit:
    return finish(provide(architectures, tmp_path / "work", tmp_path / "log"))


def refusal(tmp_path: Path, *architectures: str) -> tuple[str, str]:
    with pytest.raises(BuildError) as caught:
        take(tmp_path, *architectures)
    assert "\n" not in caught.value.message
    return caught.value.message, str(caught.value.hint)


def test_without_nvcc_the_toolkit_is_made_of_wheels(machine: Tool, tmp_path: Path) -> None:
    found = take(tmp_path, "90")
    assert found.home == tmp_path / "work" / "cuda"
    assert found.nvcc == found.home / "bin" / "nvcc"
    assert found.release == (13, 0)
    assert found.wheels is not None
    assert found.links_driver is (cuda.find_driver_library() is not None)


@pytest.mark.parametrize(
    ("release", "knows", "headers", "supports", "architecture", "is_taken"),
    [
        ("12.4", "80 90", WHOLE, None, "90", True),  # before the wheels
        ("12.8", "80 90", WHOLE, "12.2", "90", True),  # minor versions go together
        ("12.9", "61 90", WHOLE, None, "61", True),  # which CUDA 13 has given up
        ("13.0", "80 90", ("cuda_runtime.h",), None, "90", False),  # no cuBLAS
        ("13.0", "80 90", (), None, "90", False),
        ("12.4", "80 90", WHOLE, None, "120", False),  # older than the GPU wants
        ("10.2", "80 90", WHOLE, None, "90", False),  # older than llama.cpp wants
    ],
)
def test_a_toolkit_of_the_machine_comes_first_where_it_is_whole_and_fits(
    machine: Tool,
    tmp_path: Path,
    release: str,
    knows: str,
    headers: Sequence[str],
    supports: str | None,
    architecture: str,
    is_taken: bool,
) -> None:
    nvcc = own(machine, release, knows, *headers)
    if supports is not None:
        driver(machine, supports)
    found = take(tmp_path, architecture)
    assert (found.wheels is None) == (found.nvcc.resolve() == nvcc) == is_taken
    assert toolkit.format_release(found.release) == (release if is_taken else "13.0")


def test_architectures_that_a_release_compiles_for() -> None:
    assert not fits((13, 0), ("61",))
    assert fits((13, 0), ("75", "120a-real", "native", "all-major"))


def test_an_old_driver_is_refused_with_what_to_do(machine: Tool, tmp_path: Path) -> None:
    driver(machine, "12.4")
    said, mend = refusal(tmp_path, "90")
    assert "the driver 580.65.06 (CUDA up to 12.4) is older than the wheels, which start at CUDA 13.0" in said
    assert "install the CUDA 12.4 toolkit" in mend
    own(machine, "13.1", "80 90", *WHOLE)
    said, mend = refusal(tmp_path, "90")
    assert "(CUDA up to 12.4) is older than the toolkit, CUDA 13.1" in said
    assert mend == "update the driver, or use a toolkit of CUDA 12.x, at best 12.4"


@pytest.mark.parametrize(("architecture", "way"), [("61", "an older"), ("130", "a newer")])
def test_architectures_unknown_to_nvcc(machine: Tool, tmp_path: Path, architecture: str, way: str) -> None:
    assert refusal(tmp_path, "90", architecture) == (
        f"CUDA 13.0 does not compile for architecture {architecture}; it knows 75, 80, 86, 90, 120",
        f"name one of them with --cuda-arch, or use {way} CUDA toolkit",
    )


def test_native_needs_a_gpu(machine: Tool, tmp_path: Path) -> None:
    said, mend = refusal(tmp_path, "native")
    assert "this machine has no GPU" in said
    assert "--cuda-arch 90" in mend
    driver(machine, "13.0")
    assert take(tmp_path, "native").release == (13, 0)


def test_gcc_newer_than_the_toolkit_allows(
    machine: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("g++", "echo 16.1.0")
    said, mend = refusal(tmp_path, "90")
    assert said == "CUDA 13.0 supports GCC up to 15, but g++ is GCC 16.1.0"
    assert mend == "apt install g++-15; then set CUDAHOSTCXX=g++-15"
    older = machine("g++-13", "echo 13.3.0")
    assert refusal(tmp_path, "90")[1] == f"set CUDAHOSTCXX={older}"
    machine("clang++-21", "echo 21.1.0")
    for named in ("g++-13", "clang++-21"):
        monkeypatch.setenv("CUDAHOSTCXX", named)
        assert take(tmp_path, "90").release == (13, 0)


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("Driver Version: 550.54.15    CUDA Version: 12.4", Driver(version="550.54.15", supports=(12, 4))),
        ("Driver Version: 590.4    CUDA UMD Version: 13.1", Driver(version="590.4", supports=(13, 1))),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", None),
    ],
)
def test_what_the_driver_says(machine: Tool, table: str, found: Driver | None) -> None:
    machine("nvidia-smi", f'echo "{table}"')
    assert cuda.find_driver() == found


def test_the_drivers_library_is_found_where_the_loader_is_sent(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    assert cuda.find_driver_library({"LD_LIBRARY_PATH": f":{tmp_path}"}) == tmp_path / "libcuda.so.1"


# A CUDA toolkit made of links into wheels, and what stays when the wheels are gone


@pytest.fixture
def wheels(tmp_path: Path) -> Wheels:
    found = find_wheels(cuda_parts.install(tmp_path / "site"))
    assert found is not None
    return found


def test_one_root_with_everything_in_its_place(wheels: Wheels, tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    assemble(wheels, root, None)
    assert {path.name for path in root.iterdir()} == {"bin", "nvvm", "include", "lib64", "lib"}
    for place in ("include/cuda_runtime.h", "include/cublas_v2.h", "include/cccl/cub/cub.cuh"):
        assert (root / place).is_symlink()
        assert (root / place).is_file()
    assert (root / "lib64" / "libcublas.so").resolve().name == "libcublas.so.13"
    assert (root / "lib64" / "libcublasLt.so").read_text() == "cublasLt"
    assert (root / "lib64" / "libcudart_static.a").is_file()
    assert (root / "lib" / "libcudart.so").read_text() == "cudart"
    assert not (root / "lib64" / "stubs").exists()
    # the compiler finds its parts beside its real path
    assert (root / "bin" / "nvcc").resolve() == root.resolve() / "bin" / "nvcc"
    assert (root / "bin" / "nvcc").stat().st_mode & 0o111
    assert (root / "nvvm" / "bin" / "cicc").resolve().is_relative_to(root.resolve())
    library = tmp_path / "libcuda.so.1"
    library.write_text("driver")
    assemble(wheels, tmp_path / "linked", library)
    assert (tmp_path / "linked" / "lib64" / "stubs" / "libcuda.so").read_text() == "driver"


def test_libraries_and_licences_outlive_the_wheels(wheels: Wheels, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    copy_libraries(wheels, programs)
    copy_libraries(wheels, programs)  # a second compilation of the same build
    shutil.rmtree(tmp_path / "site")
    found = {str(path.relative_to(programs)): path for path in programs.rglob("*") if path.is_file()}
    assert found.keys() == {
        *("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13"),
        *("libnvrtc.so.13", "libnvrtc-builtins.so.13.0"),  # cuBLAS loads them by name
        *(f"licenses/nvidia-{name}/License.txt" for name in ("cublas", "cuda-runtime", "cuda-nvrtc")),
    }
    assert not any(path.is_symlink() for path in found.values())
    assert found["libcublas.so.13"].read_text() == "cublas"


# CUDA's wheels: which sets are whole, which drivers they serve, and how pip brings them


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where CUDA's wheels are kept; pip finds them in a folder and nowhere else."""
    if find_wheels() is not None:
        pytest.skip("the extra cuda-build is installed here")
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    return paths.cache_dir() / "cuda" / "13.0"


def watched(work: Generator[BuildProgress, None, Wheels]) -> tuple[Wheels, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    return finish(work, seen.append), seen


def test_a_set_that_lacks_a_wheel_or_has_two_releases_does_not_count(tmp_path: Path) -> None:
    for name in cuda_parts.contents():
        found = find_wheels(cuda_parts.install(tmp_path / name, without=name))
        assert (found is not None) == (name == "nvidia-cuda-nvrtc"), name  # which cuBLAS names only today
    assert find_wheels(cuda_parts.install(tmp_path / "a", nvidia_nvvm="13.2.78")) is None
    assert find_wheels(cuda_parts.install(tmp_path / "b", nvidia_cublas="12.9.1.4")) is None
    assert find_wheels(cuda_parts.install(tmp_path / "c", nvidia_cublas="13.4.0.1")) is not None


def test_wheels_serve_drivers_as_new_or_newer() -> None:
    assert wheels_suit(None)  # it runs on another machine
    for supports, suits in {(13, 0): True, (13, 4): True, (12, 9): False, (14, 0): True}.items():
        assert wheels_suit(Driver(version=None, supports=supports)) is suits


CUBLAS = "nvidia/cu13/lib/libcublas.so.13"
CICC = "nvidia/cu13/nvvm/bin/cicc"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        (CUBLAS, "", f"nvidia-cublas: {CUBLAS} has 0 bytes instead of 6"),
        (CUBLAS, "cublax", f"nvidia-cublas: {CUBLAS} has changed: its SHA-256 differs"),
        (CICC, None, f"nvidia-nvvm: {CICC} is missing"),
        ("nvidia_nvvm*/RECORD", "nvidia/x,,\n", "nvidia-nvvm: its RECORD is cut short"),
    ],
)
def test_a_damaged_file_is_found(tmp_path: Path, file: str, content: str | None, reason: str) -> None:
    site = cuda_parts.install(tmp_path)
    assert cuda.find_wheel_damage(site) is None
    (path,) = site.glob(file)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert cuda.find_wheel_damage(site) == reason


def test_pip_brings_them_once_and_again_where_they_are_damaged(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch_syncs: Callable[[Path], list[str]]
) -> None:
    seen, log = tmp_path / "seen", tmp_path / "log"
    python = fakes.script(tmp_path / "python", f"env > {seen}\nexec '{sys.executable}' \"$@\"\n")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://me:pw@index.example/simple")
    monkeypatch.setenv("https_proxy", "http://me:pw@proxy.example:3128")
    synced = watch_syncs(kept)
    wheels, events = watched(provide_wheels(log))
    assert events[0].notice
    assert "CUDA 13.0's compiler and libraries come from the package index" in events[0].line
    assert {"nvcc", "libcublas.so.13", "RECORD", "cuda"} <= {*synced}
    given = seen.read_text()
    assert "hf_" not in given
    assert {"https://me:pw@index.example/simple", "http://me:pw@proxy.example:3128"} <= {
        line.partition("=")[2] for line in given.splitlines()
    }
    compiler = wheels.files["bin/nvcc"]
    assert compiler == kept / "nvidia" / "cu13" / "bin" / "nvcc"
    assert os.access(compiler, os.X_OK)
    assert "Successfully installed" in log.read_text()
    assert watched(provide_wheels(log)) == (wheels, [])
    content = (kept / CICC).read_text()
    (kept / CICC).write_text(content[:-1])
    _, events = watched(provide_wheels(log))
    assert events[0].notice
    assert f"{CICC} has {len(content) - 1} bytes instead of {len(content)}" in events[0].line
    assert (kept / CICC).read_text() == content


def test_damaged_wheels_installed_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = cuda_parts.install(tmp_path)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    (site / CUBLAS).write_text("")
    with pytest.raises(BuildError, match="has 0 bytes instead of 6") as caught:
        watched(provide_wheels(tmp_path / "log"))
    assert "pip install --force-reinstall 'ggufspec[cuda-build]'" in str(caught.value.hint)


def test_a_failure_leaves_nothing_and_says_why(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    offline(monkeypatch, tmp_path / "empty")
    with pytest.raises(
        BuildError, match=r"not available from the package index: ERROR: .*cuda-toolkit"
    ) as caught:
        watched(provide_wheels(tmp_path / "log"))
    assert "\n" not in caught.value.message
    assert "ggufspec[cuda-build]" in str(caught.value.hint)
    python = fakes.script(
        tmp_path / "python", "echo 'Usage: pip' >&2; echo 'no such option: -q9' >&2; exit 2"
    )
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(BuildError, match="not available from the package index: no such option: -q9"):
        watched(provide_wheels(tmp_path / "log"))
    assert [path.name for path in kept.parent.iterdir()] in ([".13.0.lock"], [])


def test_the_requirement_is_that_of_the_extra() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'cuda-build = ["{cuda.REQUIREMENT}; sys_platform == ' in text


def offline(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
