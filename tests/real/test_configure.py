"""CMake's configure step of real trees for every GPU backend whose tools are here.

Configuring shows what fakes cannot: that an era's own build files take the options that our table gives
them. Trees are those whose sources `ggufspec build` has fetched, and folders that GGUFSPEC_TREES names.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11, 4):
    import tarfile
else:
    from backports import tarfile  # type: ignore[no-redef]

from ggufspec import paths, proc
from ggufspec.choices import Backend
from ggufspec.llama import cuda
from ggufspec.llama.build import recipes, toolchain, toolkit as cuda_toolkit
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.install import environment
from ggufspec.llama.source import sources
from ggufspec.steps import finish

CACHE = paths.cache_dir()  # the user's: each test gets a home of its own later
ARCHIVES = sorted(CACHE.glob("sources/*/llama_cpp_python-*.tar.gz"))
FOLDERS = [Path(each) for each in os.environ.get("GGUFSPEC_TREES", "").split(os.pathsep) if each]
TREES = [*ARCHIVES, *FOLDERS]

if not TREES:
    pytest.skip("no source of llama.cpp is here: run `ggufspec build`", allow_module_level=True)


@pytest.fixture(params=TREES, ids=lambda path: path.name)
def source(request: pytest.FixtureRequest) -> Path:
    """Every tree in turn, which may be an archive."""
    path: Path = request.param
    return path


def unpack(source: Path, into: Path, *, whole: bool = True) -> Path:
    """Return the root of a tree; of an archive, all files or only those that a recipe is made from."""
    if source.is_file():
        read = {"CMakeLists.txt", "Makefile", "llama.h"}
        with tarfile.open(source) as archive:
            members = (member for member in archive if whole or Path(member.name).name in read)
            archive.extractall(into, members, filter="data")
        (source,) = into.iterdir()
    root = sources.find_root(source)
    assert root is not None
    return root


def toolkit(monkeypatch: pytest.MonkeyPatch, work: Path) -> Toolkit:
    """The machine's own, else one of wheels that are here already: tests download nothing."""
    if cuda_toolkit.system() is None:
        kept = CACHE / "cuda" / "13.0"
        if cuda.find_wheels() is None and cuda.find_wheels(kept) is None:
            pytest.skip("no CUDA toolkit was found, nor its wheels: pip install 'ggufspec[cuda-build]'")
        monkeypatch.setenv("GGUFSPEC_CACHE", str(CACHE))
    return finish(cuda_toolkit.provide(("90",), work, work / "log"))


def configure(tree: Path, settings: CompileSettings, work: Path) -> tuple[int, str, str]:
    """Configure as a build does; return the exit status, what CMake said, and what it keeps."""
    if recipes.uses_make(tree):
        pytest.skip("this tree is built by make, which has no configure step")
    cmake, ninja = toolchain.cmake(), toolchain.tool("ninja", hint=toolchain.TOOLS_HINT)
    words = [str(cmake), "-S", str(tree), "-B", str(work / "build"), "-G", "Ninja"]
    placed = recipes.layout(work / "build" / "bin", origin="$ORIGIN", alone=settings.cuda is not None)
    options = (*recipes.cmake_options(tree, settings), f"CMAKE_MAKE_PROGRAM={ninja}", *placed)
    nvcc = settings.cuda.nvcc if settings.cuda else None
    environment = toolchain.environment(settings.backend, history=False, cuda_compiler=nvcc)
    completed, out, err = proc.capture(
        [*words, *(f"-D{option}" for option in options)], env=environment, timeout_s=280
    )
    kept = work / "build" / "CMakeCache.txt"
    return completed.returncode, out + err, kept.read_text() if kept.exists() else ""


def test_cuda(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = toolkit(monkeypatch, tmp_path)
    tree = unpack(source, tmp_path / "source")
    plugins = recipes.has_plugins(tree)
    cpu = environment.cpu_features() if plugins and environment.is_x86() else None
    settings = CompileSettings(backend=Backend.CUDA, architectures=("90",), cuda=cuda, cpu=cpu)
    returncode, said, kept = configure(tree, settings, tmp_path)
    assert returncode == 0, said[-3000:]
    assert "GGML_CUDA:BOOL=ON" in kept
    assert ("GGML_BACKEND_DL:BOOL=ON" in kept) is plugins
    assert "CMAKE_CUDA_ARCHITECTURES:UNINITIALIZED=90" in kept or "CMAKE_CUDA_ARCHITECTURES:STRING=90" in kept


@pytest.mark.parametrize(
    ("backend", "tool", "packages", "switches"),
    [
        (Backend.VULKAN, "glslc", "glslc libvulkan-dev", {"GGML_VULKAN:BOOL=ON"}),
        (Backend.HIP, "hipconfig", "hipcc libhipblas-dev", {"GGML_HIP:BOOL=ON", "GGML_HIPBLAS:BOOL=ON"}),
    ],
)
def test_other_backends(
    source: Path, tmp_path: Path, backend: Backend, tool: str, packages: str, switches: set[str]
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} is installed (on Debian: apt install {packages})")
    tree = unpack(source, tmp_path / "source")
    returncode, said, kept = configure(tree, CompileSettings(backend=backend), tmp_path)
    assert returncode == 0, said[-3000:]
    assert any(switch in kept for switch in switches)


def test_every_tree_knows_a_spelling_of_every_backend(source: Path, tmp_path: Path) -> None:
    tree = unpack(source, tmp_path / "source", whole=False)
    for backend in (Backend.CUDA, Backend.VULKAN, Backend.HIP):
        _check_spelling(tree, backend)


def _check_spelling(tree: Path, backend: Backend) -> None:
    settings = CompileSettings(backend=backend, cpu=environment.cpu_features())
    if recipes.uses_make(tree):
        words, on, declares = recipes.make_words(tree, settings)[0], "1", "ifdef {}\n"
        files = [tree / "Makefile"]
    else:
        words, on, declares = recipes.cmake_options(tree, settings), "ON", "option({} "
        files = [tree / "CMakeLists.txt", tree / "ggml" / "CMakeLists.txt"]
    chosen = dict(word.split("=", 1) for word in words)
    (switch,) = [name for name in recipes.BACKENDS[backend] if chosen.get(name) == on]
    assert any(declares.format(switch) in file.read_text() for file in files if file.is_file())
