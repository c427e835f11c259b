"""A CUDA toolkit made of links into wheels, and what stays when the wheels are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ggufspec.llama.cuda import Wheels, assemble, copy_libraries, find_wheels
from tests.support import cuda_parts


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
