"""Wheel and sdist: metadata, contents, and that the wheel works without the repository or a network."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parent.parent


def _build(source: Path, target: str, folder: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(words, cwd=source, check=True, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and installed beside nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    _build(REPOSITORY, "wheel", folder)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_llama_cpp_python_is_an_extra_because_pip_would_compile_it(site: Path) -> None:
    requirements = [Requirement(line) for line in _distribution(site).requires or []]
    by_extra = {
        extra: {
            each.name
            for each in requirements
            if each.marker is None or each.marker.evaluate({"extra": extra})
        }
        for extra in ("", "library")
    }
    assert "llama-cpp-python" not in by_extra[""]
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
        "PYTHONDONTWRITEBYTECODE": "1",  # other tests look at what is installed
    }
    words = [sys.executable, "-P", "-m", "ggufspec", "check", "demo"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("accepted")
    code = "import ggufspec.engines.library.worker; print(ggufspec.__file__)"
    place = subprocess.check_output([sys.executable, "-P", "-c", code], env=environment, text=True)
    assert Path(place.strip()).parent == site / "ggufspec"


def _distribution(site: Path) -> metadata.Distribution:
    (distribution,) = metadata.distributions(path=[str(site)])
    return distribution


def test_the_metadata_names_the_package_its_licence_and_where_it_runs(site: Path) -> None:
    facts = _distribution(site).metadata
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (facts["Name"], facts["Version"]) == ("ggufspec", project["version"])
    assert (facts["License-Expression"], facts["Requires-Python"]) == ("MIT", project["requires-python"])
    assert facts["Summary"] == project["description"]
    systems = {line for line in facts.get_all("Classifier") or [] if line.startswith("Operating System")}
    assert systems == {"Operating System :: MacOS", "Operating System :: POSIX :: Linux"}
    assert "Typing :: Typed" in (facts.get_all("Classifier") or [])


def test_no_address_is_stated_that_nobody_can_open(site: Path) -> None:
    facts = _distribution(site).metadata
    for name in ("Home-page", "Project-URL", "Download-URL", "Author-email", "Maintainer-email"):
        assert facts.get_all(name) is None
    text = facts["Description"]
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert all(target.startswith("#") for target in targets), (
        "an index cannot follow links into the repository"
    )
    assert "<!--" not in text
    assert not re.findall(r"https?://(?!127\.|localhost)", text)


def test_the_description_is_the_readme(site: Path) -> None:
    facts = _distribution(site).metadata
    text = facts["Description"]
    assert facts["Description-Content-Type"] == "text/markdown"
    assert text.startswith("# ggufspec\n")
    headings = re.findall(r"^## .*", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == re.findall(r"^## .*", text, re.MULTILINE)
    assert text.count("```") % 2 == 0
    assert "in the folder `docs` of the source archive" in text


@pytest.mark.parametrize(
    ("readme", "described"),
    [
        ("See [the tutorial](docs/tutorial.md#set-up).", "See the tutorial."),
        ("See [a page](https://example.org/a).", "See [a page](https://example.org/a)."),
        ("A\n\n![chart](docs/c.svg)\n\n*Its caption,\nin two lines.*\n\nB", "A\n\nB"),
        ("A\n\n<!-- not run:\nlong -->\n```sh\nls\n```", "A\n\n```sh\nls\n```"),
    ],
)
def test_what_an_index_cannot_follow_is_left_out(readme: str, described: str) -> None:
    describe = runpy.run_path(str(REPOSITORY / "hatch_build.py"))["describe"]
    assert describe(readme).startswith(f"{described}\n\n")


def test_the_wheel_holds_the_package_and_nothing_else(site: Path) -> None:
    files = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {name.split("/")[0] for name in files} == {"ggufspec", next(site.glob("*.dist-info")).name}
    sources = [*(REPOSITORY / "ggufspec").rglob("*"), *(REPOSITORY / "models").rglob("*")]
    kept = (path for path in sources if path.is_file() and "__pycache__" not in path.parts)
    names = {path.relative_to(REPOSITORY).as_posix() for path in kept}
    expected = {name if name.startswith("ggufspec/") else f"ggufspec/{name}" for name in names}
    installed = {name for name in files if name.startswith("ggufspec/")}
    assert expected - installed == set()
    assert not [name for name in installed if "__pycache__" in name or name.endswith(".pyc")]
    for name in ("target.gguf", "drafter.gguf", "prompts.toml"):
        assert f"ggufspec/models/demo/{name}" in installed
    assert "ggufspec/models/pairs.toml" in installed
    assert any(name.endswith("/licenses/LICENSE") for name in files)


def test_the_sdist_builds_the_same_wheel(site: Path, tmp_path: Path) -> None:
    _build(REPOSITORY, "sdist", tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    (tmp_path / "source").mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "-C", str(tmp_path / "source")], check=True)
    (source,) = (tmp_path / "source").iterdir()
    tops = {path.name for path in source.iterdir()}
    parts = {"ggufspec", "models", "docs", "tests", "scripts", "hatch_build.py", "pyproject.toml", "LICENSE"}
    assert tops >= parts
    assert tops.isdisjoint({".git", ".venv", "shared", "dist", "build"})
    _build(source, "wheel", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as again:
        rebuilt = {name for name in again.namelist() if not name.endswith("/")}
    assert rebuilt == {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
