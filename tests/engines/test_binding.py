"""The Python binding of a build: kept beside its library, loaded from there, added to builds that lack it."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import digests, engines, paths
from ggufspec.cli.build import command
from ggufspec.domain import Failure, Status
from ggufspec.engines.library.binding import load_binding
from ggufspec.engines.library.messages import Library
from ggufspec.errors import NoInstallError
from ggufspec.llama.build.building import BuildRequest, build
from ggufspec.llama.install import binding_files, releases, store
from ggufspec.llama.install.installs import Install
from ggufspec.llama.install.store import Backend, Built
from ggufspec.llama.source.sources import TODAY, Local, Sdist, choose_source, has_binding
from tests.support.builds import make_build

PACKAGE = {"llama_cpp.py": "# structs\n", "_ctypes_extensions.py": "# loads\n", "llama.py": "import numpy\n"}

PROGRAM = """#!/bin/sh
case "$1" in
--version) echo 'version: 1 (abcdef0)' >&2 ;;
--help) printf '%s\\n' '-m, --model F' '-p, --prompt P' '-n, --n-predict N' '-c, --ctx-size N' \\
    '-t, --threads N' '--temp N' '-s, --seed N' ;;
esac
"""
CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(fake LANGUAGES NONE)
configure_file(program.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/llama-completion)
add_custom_target(llama-completion)
"""


def write_binding(folder: Path, text: str = "") -> Path:
    """Write a binding as llama-cpp-python does: its file names the other one by the package's public name."""
    package = folder / "llama_cpp"
    package.mkdir(parents=True)
    (package / "_ctypes_extensions.py").write_text("import typing_extensions\nANSWER = 42\n")
    (package / "llama_cpp.py").write_text(
        "import os\n"
        "from llama_cpp._ctypes_extensions import ANSWER\n"
        "place = os.environ['LLAMA_CPP_LIB_PATH']\n"
        f"{text}"
    )
    return package


def in_a_process(code: str, *words: Path) -> str:
    return subprocess.check_output([sys.executable, "-c", code, *map(str, words)], text=True)


LOAD = """
import sys
from pathlib import Path
from ggufspec.engines.library.binding import import_binding
from ggufspec.engines.library.messages import Library
lib = import_binding(Library(folder=Path("/lib"), binding=Path(sys.argv[1])))
print(lib.ANSWER, lib.place, lib.__name__, *sorted(name for name in sys.modules if "llama_cpp" in name))
"""


def test_a_binding_is_loaded_under_a_private_name_and_leaves_nothing_behind(tmp_path: Path) -> None:
    package = write_binding(tmp_path)
    assert in_a_process(LOAD, package).split() == [
        *("42", "/lib", "ggufspec_llama_cpp.llama_cpp"),
        *("ggufspec_llama_cpp", "ggufspec_llama_cpp._ctypes_extensions", "ggufspec_llama_cpp.llama_cpp"),
    ]
    assert sorted(path.name for path in package.iterdir()) == ["_ctypes_extensions.py", "llama_cpp.py"]


def test_an_installed_package_is_as_it_was_after_a_binding_was_loaded(tmp_path: Path) -> None:
    installed = write_binding(tmp_path / "site", "NAME = 'installed'\n")
    (installed / "__init__.py").touch()
    package = write_binding(tmp_path / "build", "NAME = 'build'\n")
    code = f"import sys; sys.path.insert(0, {str(installed.parent)!r}); import llama_cpp\n{LOAD}"
    code += "from llama_cpp import llama_cpp as other\nprint(lib.NAME, other.NAME)"
    environment = f"import os; os.environ['LLAMA_CPP_LIB_PATH'] = ''\n{code}"
    assert in_a_process(environment, package).split()[-2:] == ["build", "installed"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no Python binding loads from"),
        ("", "has no llama_memory_seq_rm: it is older than llama-cpp-python 0.3.10"),
        ("raise AttributeError('/libllama.so: undefined symbol: llama_new')\n", r"\(llama_new\)"),
        ("raise FileNotFoundError\n", "has no libllama"),
        ("raise RuntimeError('cut short')\n", "/nowhere: cut short"),
    ],
)
def test_what_does_not_load_is_a_failed_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, reason: str
) -> None:
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.delenv("LLAMA_CPP_LIB_PATH", raising=False)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "restored afterwards")
    package = tmp_path if text is None else write_binding(tmp_path, text)
    with pytest.raises(Failure, match=reason) as caught:
        load_binding(Library(folder=Path("/nowhere"), binding=package))
    assert caught.value.status is Status.LOAD_FAILED


def plant_package(root: Path) -> Path:
    """Plant llama-cpp-python's tree, whose llama.cpp is a shell script."""
    vendored = root / "vendor" / "llama.cpp"
    files = {"include/llama.h": "", "CMakeLists.txt": CMAKE, "program.sh": PROGRAM}
    for place, text in {
        **{vendored / name: text for name, text in files.items()},
        **{root / "llama_cpp" / name: text for name, text in PACKAGE.items()},
    }.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    (vendored / "program.sh").chmod(0o755)
    return root


def build_now(source: Local | Sdist) -> tuple[Built, list[str]]:
    work, lines = build(BuildRequest(source=source, backend=Backend.CPU, jobs=1)), list[str]()
    while True:
        try:
            lines.append(next(work).line)
        except StopIteration as end:
            return end.value, lines


def without_binding(built: Built) -> None:
    """Leave a build as an earlier ggufspec would have."""
    manifest = built.path / store.MANIFEST
    facts = json.loads(manifest.read_text())
    for name in binding_files.FILES:
        del facts["files"][f"llama_cpp/{name}"]
        (built.bin / "llama_cpp" / name).unlink()
    (built.bin / "llama_cpp").rmdir()
    manifest.write_text(json.dumps(facts))


def test_a_build_keeps_the_two_files_of_its_source_and_their_hashes(tmp_path: Path) -> None:
    built, _ = build_now(Local(plant_package(tmp_path / "tree")))
    assert built.binding == built.bin / "llama_cpp"
    assert {path.name for path in built.binding.iterdir()} == {"llama_cpp.py", "_ctypes_extensions.py"}
    assert (built.binding / "llama_cpp.py").read_text() == PACKAGE["llama_cpp.py"]
    assert built.files is not None
    assert built.files["llama_cpp/llama_cpp.py"].size_bytes == len(PACKAGE["llama_cpp.py"])
    assert built.programs == ("llama-completion",)
    (built.binding / "llama_cpp.py").write_text("# 0tructs\n")
    skipped = store.examine(built.path)
    assert "llama_cpp/llama_cpp.py has changed since it was built" in str(skipped)


def test_a_build_of_llama_cpp_alone_has_no_binding(tmp_path: Path) -> None:
    tree = plant_package(tmp_path / "tree") / "vendor" / "llama.cpp"
    moved = tree.rename(tmp_path / "llama.cpp")
    assert not has_binding(Local(moved))
    built, _ = build_now(Local(moved))
    assert (built.binding, store.find_build(built.path.name)) == (None, built)


def test_a_build_without_its_binding_gets_it_from_the_source_and_is_not_compiled_again(
    tmp_path: Path,
) -> None:
    source = Local(plant_package(tmp_path / "tree"))
    built, _ = build_now(source)
    without_binding(built)
    words = ["--backend", "cpu", "--source", str(source.path)]
    first = CliRunner().invoke(command, words, catch_exceptions=False)
    assert first.stderr == (
        "an older ggufspec made this build without its Python binding: adding it from the source\n"
        "already built: llama.cpp local-tree (cpu)\n"
    )
    assert store.find_build(built.path.name) == built
    again = CliRunner().invoke(command, words, catch_exceptions=False)
    assert again.stderr == "already built: llama.cpp local-tree (cpu)\n"


def test_a_build_whose_source_is_gone_stays_in_use_without_a_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    request = BuildRequest(source=Sdist("9.8.7"), backend=Backend.CPU, jobs=1)
    built = make_build(request.key(), version="9.8.7")
    same, lines = build_now(Sdist("9.8.7"))
    assert same == built
    assert (
        "the Python binding is missing, which --engine inprocess needs: llama-cpp-python 9.8.7" in lines[-1]
    )


def test_an_archive_in_the_cache_is_enough_to_add_the_binding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    archive = tmp_path / "llama_cpp_python-9.8.7.tar.gz"
    tree = plant_package(tmp_path / "llama_cpp_python-9.8.7")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, tree.name)
    sha256 = digests.of_file(archive).sha256
    kept = paths.sources_dir() / sha256 / archive.name
    kept.parent.mkdir(parents=True)
    archive.rename(kept)
    (paths.sources_dir() / "llama_cpp_python-9.8.7.sha256").write_text(f"{sha256}  {kept}\n")
    request = BuildRequest(source=Sdist("9.8.7"), backend=Backend.CPU, jobs=1)
    built = make_build(request.key(), version="9.8.7")
    assert built.binding is None
    assert build_now(Sdist("9.8.7"))[0].binding == built.bin / "llama_cpp"


def test_a_release_that_is_too_old_gets_no_binding() -> None:
    assert [releases.has_binding(release) for release in ("0.2.63", "0.3.9", "0.3.10", TODAY, "9.0.0")] == [
        *(False, False, True, True, True)
    ]
    request = BuildRequest(source=Sdist("0.3.9"), backend=Backend.CPU, jobs=1)
    built = make_build(request.key(), version="0.3.9")
    assert build_now(Sdist("0.3.9")) == (built, [])


@pytest.fixture
def install(tmp_path: Path) -> Install:
    (tmp_path / "libllama.so").touch()
    return Install(
        root=tmp_path,
        origin="own build",
        programs={},
        version="9.8.7",
        build_number=None,
        commit=None,
        backend="cpu",
        release="9.8.7",
    )


def test_a_release_that_is_too_old_is_refused_by_name(install: Install) -> None:
    reason = r"is of llama-cpp-python 0\.3\.9; the engine inprocess needs 0\.3\.10 or newer"
    with pytest.raises(NoInstallError, match=reason) as caught:
        engines.check_library(replace(install, version="0.3.9", release="0.3.9"))
    assert "`ggufspec build` makes a newer one" in str(caught.value.hint)


def test_a_build_without_its_binding_names_the_command_that_adds_it(install: Install) -> None:
    with pytest.raises(NoInstallError, match="which is not in it") as caught:
        engines.check_library(install)
    assert "`ggufspec build --version 9.8.7 --backend cpu` adds it without compiling" in str(
        caught.value.hint
    )


def test_without_an_installed_package_the_release_that_was_tested_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert choose_source(None, None) == Sdist(TODAY)
