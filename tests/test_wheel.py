"""The wheel: what it needs, what is inside, and that it works without the repository or a network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed beside nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_llama_cpp_python_is_an_extra_because_pip_would_compile_it(site: Path) -> None:
    (distribution,) = metadata.distributions(path=[str(site)])
    requirements = [Requirement(line) for line in distribution.requires or []]
    by_extra = {
        extra: {
            each.name
            for each in requirements
            if each.marker is None or each.marker.evaluate({"extra": extra})
        }
        for extra in ("", "library")
    }
    assert "llama-cpp-python" not in by_extra[""]
    assert "typing-extensions" in by_extra[""]
    assert "llama-cpp-python" in by_extra["library"]


def test_the_wheel_has_the_embedded_pair_and_no_file_of_llama_cpp_python(site: Path) -> None:
    assert (site / "ggufspec" / "py.typed").is_file()
    assert {path.name for path in (site / "ggufspec" / "models" / "demo").glob("*.gguf")}
    assert not [path for path in site.rglob("*") if path.name in {"llama_cpp.py", "_ctypes_extensions.py"}]


def test_the_wheel_works_offline_without_llama_cpp_python(site: Path, tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise ImportError\n")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, site))),
        "GGUFSPEC_OFFLINE": "1",
    }
    words = [sys.executable, "-P", "-m", "ggufspec", "check", "demo"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("accepted")
    code = "import ggufspec.engines.library.worker; print(ggufspec.__file__)"
    place = subprocess.check_output([sys.executable, "-P", "-c", code], env=environment, text=True)
    assert Path(place.strip()).parent == site / "ggufspec"
