"""A fake prebuilt llama-cpp-python, the real package with a library built before: nothing is built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ggufspec import results
from ggufspec.domain import Status
from ggufspec.llama.install.installs import Install
from tests.support import imagined_times, shell
from tests.support.packages import write_package

ROOT = Path(__file__).parents[2]
_LIBRARY = re.compile(r"lib.+\.so")
SHORT = ("--pair", "demo", "-t", "1", "-p", "Story: Mira and the brass lantern")


@pytest.fixture
def package(llama: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package in a folder of packages that Python looks into first; no build and no program is found."""
    if llama.library is None:
        pytest.skip("this llama.cpp has no shared library")
    distribution = metadata.distribution("llama-cpp-python")
    site = tmp_path / "site packages"
    folder = write_package(
        site,
        {path.name: path.read_bytes() for path in llama.library.iterdir() if _LIBRARY.match(path.name)},
        version=distribution.version,
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def test_a_bench_needs_no_build(package: Path) -> None:
    words = ("bench", *SHORT, "--draft", "3", "-r", "1", "--warmup", "0", "-n", "24", "--name", "wheel")
    done = shell.ggufspec(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        f"engine: inprocess, because the llama.cpp in {package} has no llama-completion; "
        "it drafts only with a draft model, and serves one request after another\n"
    )
    bench = results.load("wheel")
    assert (bench.meta.engine, bench.meta.build.path) == ("inprocess", str(package))
    assert {run.sample.status for run in bench.runs} == {Status.OK}
    assert any(run.sample.n_accepted for run in bench.runs)
    assert {file.use.value for file in bench.meta.files or ()} >= {"library", "model"}


@pytest.mark.takes(15)
@pytest.mark.timeout(400)
def test_a_tuning_needs_no_build(package: Path) -> None:
    chosen = ("--draft", "2", "--method", "draft-model", "-n", "12", *imagined_times.PATIENT)
    done = subprocess.run(
        [sys.executable, "-c", imagined_times.RUN, "tune", *SHORT, *chosen],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"\nengine: inprocess, because the llama.cpp in {package} has no programs" in done.stderr
    assert "--engine inprocess" in done.stdout
    assert "llama-server" not in done.stderr
