"""CUDA's wheels: which sets are whole, which drivers they serve, and how pip brings them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import BuildError
from ggufspec.llama import cuda
from ggufspec.llama.cuda import Driver, Wheels, find_wheels, provide_wheels, wheels_suit
from ggufspec.steps import BuildProgress
from tests.support import cuda_parts, fakes

in_environment = pytest.mark.skipif(
    find_wheels() is not None, reason="the extra cuda-build is installed here"
)


def finish(work: Generator[BuildProgress, None, Wheels]) -> tuple[Wheels, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    while True:
        try:
            seen.append(next(work))
        except StopIteration as end:
            return end.value, seen


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
def test_wheels_serve_drivers_of_their_release_and_newer(
    supports: tuple[int, int] | None, *, served: bool
) -> None:
    assert wheels_suit(Driver(version=None, supports=supports) if supports else None) is served


@in_environment
def test_pip_brings_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    log = tmp_path / "log"
    wheels, seen = finish(provide_wheels(log))
    assert seen[0].notice
    assert "CUDA 13.0's compiler and libraries come from the package index" in seen[0].line
    compiler = wheels.files["bin/nvcc"]
    assert compiler == paths.cache_dir() / "cuda" / "13.0" / "nvidia" / "cu13" / "bin" / "nvcc"
    assert os.access(compiler, os.X_OK)
    assert "Successfully installed" in log.read_text()
    assert finish(provide_wheels(log)) == (wheels, [])


CUBLAS = "nvidia/cu13/lib/libcublas.so.13"
CICC = "nvidia/cu13/nvvm/bin/cicc"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda site: (site / CUBLAS).write_text(""), f"nvidia-cublas: {CUBLAS} has 0 bytes instead of 6"),
        (lambda site: (site / CUBLAS).write_text("cublax"), f"{CUBLAS} has a different SHA-256 than"),
        (lambda site: (site / CICC).unlink(), f"nvidia-nvvm: {CICC} cannot be read"),
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
def test_damaged_wheels_in_the_cache_are_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    home = paths.cache_dir() / "cuda" / "13.0"
    finish(provide_wheels(tmp_path / "log"))
    content = (home / name).read_text()
    (home / name).write_text(content[:-1])
    _, seen = finish(provide_wheels(tmp_path / "log"))
    assert seen[0].notice
    assert f"{name} has {len(content) - 1} bytes instead of {len(content)}" in seen[0].line
    assert (home / name).read_text() == content


def test_damaged_wheels_of_the_environment_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = cuda_parts.install(tmp_path)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    (site / CUBLAS).write_text("")
    with pytest.raises(BuildError, match="has 0 bytes instead of 6") as caught:
        finish(provide_wheels(tmp_path / "log"))
    assert "pip install --force-reinstall 'ggufspec[cuda-build]'" in str(caught.value.hint)


@in_environment
def test_wheels_are_on_the_disk_before_they_get_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    finish(provide_wheels(tmp_path / "log"))
    assert {"nvcc", "libcublas.so.13", "RECORD", "cuda"} <= synced


@in_environment
def test_pip_gets_what_is_set_for_it_and_no_other_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(monkeypatch, cuda_parts.pack(tmp_path / "index"))
    seen = tmp_path / "seen"
    python = fakes.script(tmp_path / "python", f"env > {seen}\nexec '{sys.executable}' \"$@\"\n")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://me:pw@index.example/simple")
    monkeypatch.setenv("https_proxy", "http://me:pw@proxy.example:3128")
    finish(provide_wheels(tmp_path / "log"))
    given = seen.read_text()
    assert "hf_" not in given
    assert {"https://me:pw@index.example/simple", "http://me:pw@proxy.example:3128"} <= {
        line.partition("=")[2] for line in given.splitlines()
    }


@in_environment
def test_what_cannot_be_had_leaves_nothing_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    offline(monkeypatch, tmp_path / "empty")
    with pytest.raises(
        BuildError, match=r"not available from the package index: ERROR: .*cuda-toolkit"
    ) as caught:
        finish(provide_wheels(tmp_path / "log"))
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
