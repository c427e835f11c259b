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
    return finish(provide(architectures, tmp_path / "work", tmp_path / "log"))


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
def test_architectures_unknown_to_nvcc(tool: Tool, tmp_path: Path, architecture: str, way: str) -> None:
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


def test_cudahostcxx_names_the_compiler(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_compiler_finds_its_parts_beside_its_real_path(wheels: Wheels, tmp_path: Path) -> None:
    root = tmp_path / "cuda"
    assemble(wheels, root, None)
    assert (root / "bin" / "nvcc").resolve() == root.resolve() / "bin" / "nvcc"
    assert (root / "bin" / "nvcc").stat().st_mode & 0o111
    assert (root / "nvvm" / "bin" / "cicc").resolve().is_relative_to(root.resolve())


def test_the_driver_can_be_linked_against(wheels: Wheels, tmp_path: Path) -> None:
    driver = tmp_path / "libcuda.so.1"
    driver.write_text("driver")
    assemble(wheels, tmp_path / "cuda", driver)
    assert (tmp_path / "cuda" / "lib64" / "stubs" / "libcuda.so").read_text() == "driver"


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


in_environment = pytest.mark.skipif(
    find_wheels() is not None, reason="the extra cuda-build is installed here"
)


def watched(work: Generator[BuildProgress, None, Wheels]) -> tuple[Wheels, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    return finish(work, seen.append), seen


def test_a_whole_set_is_found(tmp_path: Path) -> None:
    found = find_wheels(cuda_parts.install(tmp_path))
    assert found.release == (13, 0)
    assert found.files["bin/nvcc"] == tmp_path / "nvidia/cu13/bin/nvcc"
    assert {"lib/libcublas.so.13", "include/cccl/cub/cub.cuh", "nvvm/bin/cicc"} <= found.files.keys()
    assert [path.read_text() for path in found.licences["nvidia-cublas"]] == ["the licence of nvidia-cublas"]


def test_what_cublas_names_only_today_may_be_missing(tmp_path: Path) -> None:
    found = find_wheels(cuda_parts.install(tmp_path, without="nvidia-cuda-nvrtc"))
    assert "nvidia-cuda-nvrtc" not in found.licences


@pytest.mark.parametrize("without", [name for name in cuda_parts.contents() if "nvrtc" not in name])
def test_a_set_without_any_one_wheel_does_not_count(tmp_path: Path, without: str) -> None:
    assert find_wheels(cuda_parts.install(tmp_path, without=without)) is None


def test_wheels_of_two_releases_do_not_go_together(tmp_path: Path) -> None:
    assert find_wheels(cuda_parts.install(tmp_path / "a", nvidia_nvvm="13.2.78")) is None
    assert find_wheels(cuda_parts.install(tmp_path / "b", nvidia_cublas="12.9.1.4")) is None
    assert find_wheels(cuda_parts.install(tmp_path / "c", nvidia_cublas="13.4.0.1")) is not None


@pytest.mark.parametrize(
    ("supports", "served"),
    [(None, True), ((13, 0), True), ((13, 4), True), ((12, 9), False), ((14, 0), True)],
)
def test_wheels_serve_drivers_as_new_or_newer(supports: tuple[int, int] | None, *, served: bool) -> None:
    assert wheels_suit(Driver(version=None, supports=supports) if supports else None) is served


@in_environment
def test_pip_brings_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    log = tmp_path / "log"
    wheels, seen = watched(provide_wheels(log))
    assert seen[0].notice
    assert "CUDA 13.0's compiler and libraries come from the package index" in seen[0].line
    compiler = wheels.files["bin/nvcc"]
    assert compiler == paths.cache_dir() / "cuda" / "13.0" / "nvidia" / "cu13" / "bin" / "nvcc"
    assert os.access(compiler, os.X_OK)
    assert "Successfully installed" in log.read_text()
    assert watched(provide_wheels(log)) == (wheels, [])


CUBLAS = "nvidia/cu13/lib/libcublas.so.13"
CICC = "nvidia/cu13/nvvm/bin/cicc"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda site: (site / CUBLAS).write_text(""), f"nvidia-cublas: {CUBLAS} has 0 bytes instead of 6"),
        (lambda site: (site / CUBLAS).write_text("cublax"), f"{CUBLAS} has changed: its SHA-256"),
        (lambda site: (site / CICC).unlink(), f"nvidia-nvvm: {CICC} is missing"),
        (lambda site: _cut(next(site.glob("nvidia_nvvm*/RECORD"))), "nvidia-nvvm: its RECORD is cut short"),
    ],
    ids=["empty", "changed", "missing", "RECORD"],
)
def test_a_damaged_file_is_found(tmp_path: Path, damage: Callable[[Path], object], reason: str) -> None:
    site = cuda_parts.install(tmp_path)
    assert cuda.find_wheel_damage(site) is None
    damage(site)
    assert reason in str(cuda.find_wheel_damage(site))


def _cut(record: Path) -> None:
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:1]))


@in_environment
@pytest.mark.parametrize("name", [CUBLAS, CICC])
def test_damaged_wheels_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    home = paths.cache_dir() / "cuda" / "13.0"
    watched(provide_wheels(tmp_path / "log"))
    content = (home / name).read_text()
    (home / name).write_text(content[:-1])
    _, seen = watched(provide_wheels(tmp_path / "log"))
    assert seen[0].notice
    assert f"{name} has {len(content) - 1} bytes instead of {len(content)}" in seen[0].line
    assert (home / name).read_text() == content


def test_damaged_wheels_installed_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = cuda_parts.install(tmp_path)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    (site / CUBLAS).write_text("")
    with pytest.raises(BuildError, match="has 0 bytes instead of 6") as caught:
        watched(provide_wheels(tmp_path / "log"))
    assert "pip install --force-reinstall 'ggufspec[cuda-build]'" in str(caught.value.hint)


@in_environment
def test_wheels_are_written_before_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/fd").is_dir():
        pytest.skip("this system does not tell which file a descriptor belongs to")
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    home, synced, true_sync = paths.cache_dir() / "cuda" / "13.0", set[str](), os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/dev/fd/{descriptor}").resolve()
        assert home.exists() == (path == home.parent)
        synced.add(path.name)
        true_sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    watched(provide_wheels(tmp_path / "log"))
    assert {"nvcc", "libcublas.so.13", "RECORD", "cuda"} <= synced


@in_environment
def test_pip_gets_its_settings_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    seen = tmp_path / "seen"
    python = fakes.script(tmp_path / "python", f"env > {seen}\nexec '{sys.executable}' \"$@\"\n")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://me:pw@index.example/simple")
    monkeypatch.setenv("https_proxy", "http://me:pw@proxy.example:3128")
    watched(provide_wheels(tmp_path / "log"))
    given = seen.read_text()
    assert "hf_" not in given
    assert {"https://me:pw@index.example/simple", "http://me:pw@proxy.example:3128"} <= {
        line.partition("=")[2] for line in given.splitlines()
    }


@in_environment
def test_a_failure_leaves_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    offline(monkeypatch, tmp_path / "empty")
    with pytest.raises(
        BuildError, match=r"not available from the package index: ERROR: .*cuda-toolkit"
    ) as caught:
        watched(provide_wheels(tmp_path / "log"))
    assert "\n" not in caught.value.message
    assert "ggufspec[cuda-build]" in str(caught.value.hint)
    assert [path.name for path in (paths.cache_dir() / "cuda").iterdir()] in (["." + "13.0.lock"], [])


def test_the_requirement_is_that_of_the_extra() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'cuda-build = ["{cuda.REQUIREMENT}; sys_platform == ' in text


def offline(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
