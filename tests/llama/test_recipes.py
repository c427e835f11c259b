"""How each era is built: options read from trees that declare what the real ones of their era do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ggufspec.choices import Backend
from ggufspec.errors import SourceError
from ggufspec.llama.build import recipes
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.cuda import Wheels

MAKEFILE = """
BUILD_TARGETS = main quantize server speculative tokenize
default: $(BUILD_TARGETS)
ifdef LLAMA_CUBLAS
ifdef LLAMA_CUDA
ifdef LLAMA_VULKAN
ifdef LLAMA_HIPBLAS
ifdef LLAMA_METAL
libllama.so: llama.o
main: examples/main/main.cpp
quantize: examples/quantize/quantize.cpp
batched-bench: examples/batched-bench/batched-bench.cpp
llama-bench: examples/llama-bench/llama-bench.cpp
server: examples/server/server.cpp
speculative: examples/speculative/speculative.cpp
tokenize: examples/tokenize/tokenize.cpp
"""
GGML = ("GGML_NATIVE", "GGML_AVX", "GGML_AVX2", "GGML_AVX512", "GGML_CUDA", "GGML_METAL", "GGML_VULKAN")
LLAMA = ("BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER")
OLD_NAMES_LIVE_ON_AS_ERRORS = """
llama_option_depr(FATAL_ERROR LLAMA_CUBLAS GGML_CUDA)
llama_option_depr(WARNING     LLAMA_CUDA   GGML_CUDA)
llama_option_depr(WARNING     LLAMA_CURL)
"""
ERAS: Mapping[str, Mapping[str, tuple[str, ...] | str]] = {
    "b2500": {"Makefile": MAKEFILE.replace("ifdef LLAMA_CUDA\n", "")},
    "b2699": {"Makefile": MAKEFILE, "CMakeLists.txt": ("LLAMA_CUDA", "LLAMA_CUBLAS")},
    "b3642": {
        "Makefile": MAKEFILE + "llama-cli: examples/main/main.cpp\n",
        "CMakeLists.txt": (*LLAMA, "LLAMA_CURL"),
        "ggml/CMakeLists.txt": (*GGML, "GGML_HIPBLAS", "GGML_SSE42"),
    },
    "b5308": {  # curl is on by default
        "CMakeLists.txt": (*LLAMA, "LLAMA_BUILD_TOOLS", "LLAMA_CURL"),
        "ggml/CMakeLists.txt": (*GGML, "GGML_HIP", "GGML_METAL_EMBED_LIBRARY"),
    },
    "b8643": {
        "CMakeLists.txt": (*LLAMA, "LLAMA_BUILD_TOOLS", "LLAMA_OPENSSL"),
        "ggml/CMakeLists.txt": (*GGML, "GGML_HIP"),
        "tools/server/CMakeLists.txt": ("LLAMA_BUILD_WEBUI",),
    },
    "0.3.36": {
        "CMakeLists.txt": (
            *(*LLAMA, "LLAMA_BUILD_TOOLS", "LLAMA_OPENSSL"),
            *("LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_COMMON"),
        ),
        "ggml/CMakeLists.txt": (
            *(*GGML, "GGML_HIP", "GGML_SSE42", "GGML_AMX_TILE"),
            *("GGML_BACKEND_DL", "GGML_CPU_ALL_VARIANTS", "GGML_CUDA_NO_VMM", "GGML_CCACHE"),
        ),
    },
}
BY_MAKE = {"b2500", "b2699"}
CPU = frozenset({"AVX", "AVX2"})


def plant(root: Path, era: str, *more: str) -> Path:
    """Write the build files of an era; ``more`` are lines at the end of its main one."""
    for name, content in ERAS[era].items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str):
            content = "".join(f'option({option:<24} "what it does" ON)\n' for option in content)
            if name == "CMakeLists.txt" and era != "b2699":
                content += OLD_NAMES_LIVE_ON_AS_ERRORS
            if era == "0.3.36":
                content += "if (NOT DEFINED LLAMA_BUILD_NUMBER)\n"
        (root / name).write_text(content)
    with (root / ("Makefile" if era in BY_MAKE else "CMakeLists.txt")).open("a") as file:
        file.writelines(f"{line}\n" for line in more)
    return root


def options(root: Path, backend: Backend = Backend.CPU, **settings: object) -> dict[str, str]:
    words = recipes.cmake_options(root, CompileSettings(backend=backend, **settings))  # type: ignore[arg-type]
    return dict(word.split("=", 1) for word in words)


def test_only_trees_with_main_are_built_by_make(tmp_path: Path) -> None:
    assert {era for era in ERAS if recipes.uses_make(plant(tmp_path / era, era))} == BY_MAKE


# CMake ------------------------------------------------------------------------------------------------------


HIP = {"b3642": "GGML_HIPBLAS"}  # later GGML_HIP


@pytest.mark.parametrize("era", ["b3642", "b5308", "b8643", "0.3.36"])
@pytest.mark.parametrize("backend", Backend)
def test_cmake_switches_on_one_backend(tmp_path: Path, era: str, backend: Backend) -> None:
    chosen = options(plant(tmp_path, era), backend)
    switch = HIP.get(era, "GGML_HIP") if backend is Backend.HIP else f"GGML_{backend.name}"
    spellings = {name for names in recipes.BACKENDS.values() for name in names}
    on = [name for name in spellings if chosen.get(name) == "ON"]
    assert on == ([] if backend is Backend.CPU else [switch])
    assert {"GGML_CUDA", "GGML_METAL", "GGML_VULKAN"} <= chosen.keys()
    assert not {"LLAMA_CUDA", "LLAMA_CUBLAS", "GGML_AVX2"} & chosen.keys()
    assert chosen["GGML_NATIVE"] == "ON"


@pytest.mark.parametrize(
    ("era", "off"),
    [
        ("b3642", {"LLAMA_CURL"}),
        ("b5308", {"LLAMA_CURL"}),
        ("b8643", {"LLAMA_OPENSSL", "LLAMA_BUILD_WEBUI"}),
    ],
)
def test_what_needs_network_or_takes_long_is_off(tmp_path: Path, era: str, off: set[str]) -> None:
    chosen = options(plant(tmp_path, era))
    found = {name for name, value in chosen.items() if value == "OFF" and name.startswith("LLAMA")}
    assert found == {"LLAMA_BUILD_TESTS", *off}


def test_every_option_of_todays_cpu_build(tmp_path: Path) -> None:
    commit = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
    parts, backends = ("COMMON", "EXAMPLES", "TOOLS", "SERVER"), ("CUDA", "METAL", "VULKAN", "HIP")
    off = ("LLAMA_BUILD_TESTS", "LLAMA_OPENSSL", "LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI")
    assert options(plant(tmp_path, "0.3.36"), commit=commit, number=12) == {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        **dict.fromkeys(
            ("BUILD_SHARED_LIBS", "GGML_NATIVE", *(f"LLAMA_BUILD_{part}" for part in parts)), "ON"
        ),
        **dict.fromkeys((*off, *(f"GGML_{backend}" for backend in backends)), "OFF"),
        "LLAMA_BUILD_NUMBER": "12",
        "LLAMA_BUILD_COMMIT": "0c1e57098",
    }


def test_a_tarball_has_no_number(tmp_path: Path) -> None:
    chosen = options(plant(tmp_path, "0.3.36"))
    assert (chosen["LLAMA_BUILD_NUMBER"], chosen["LLAMA_BUILD_COMMIT"]) == ("0", "unknown")
    assert "LLAMA_BUILD_NUMBER" not in options(plant(tmp_path / "old", "b3642"), number=3642)


def test_rpc_and_embedded_metal_are_switched_on_where_the_tree_has_them(tmp_path: Path) -> None:
    for era, backend, name in (
        ("b5308", Backend.CPU, "GGML_RPC"),
        ("b8643", Backend.CPU, "LLAMA_RPC"),
        ("b8643", Backend.METAL, "LLAMA_METAL_EMBED_LIBRARY"),
    ):
        assert name not in options(plant(tmp_path / era, era), backend)
        assert options(plant(tmp_path / era, era, f"option({name} it OFF)"), backend)[name] == "ON"
    assert options(plant(tmp_path, "b5308"), Backend.METAL)["GGML_METAL_EMBED_LIBRARY"] == "ON"


@pytest.mark.parametrize(
    ("backend", "added", "reason"),
    [
        (Backend.CPU, "BUILD_SHARED_LIBS=OFF", "BUILD_SHARED_LIBS=OFF contradicts .*: BUILD_SHARED_LIBS=ON"),
        (Backend.CPU, "GGML_RPC=0", "GGML_RPC=0 contradicts .*: GGML_RPC=ON"),
        (Backend.CPU, "LLAMA_BUILD_TESTS=ON", "LLAMA_BUILD_TESTS=ON contradicts"),
        (Backend.CPU, "LLAMA_BUILD_SERVER=OFF", "LLAMA_BUILD_SERVER=OFF contradicts"),
        (Backend.CPU, "GGML_CUDA=ON", "GGML_CUDA=ON contradicts .*: GGML_CUDA=OFF"),
        (Backend.CPU, "LLAMA_CUDA=ON", "LLAMA_CUDA=ON contradicts .*: LLAMA_CUDA=OFF"),
        (Backend.CUDA, "GGML_CUDA=OFF", "GGML_CUDA=OFF contradicts .*: GGML_CUDA=ON"),
        (Backend.CPU, "GGML_STATIC=ON", "GGML_STATIC=ON contradicts"),
        (Backend.CPU, "LLAMA_BUILD_NUMBER=5", "LLAMA_BUILD_NUMBER=5 contradicts"),
        (Backend.CPU, "CMAKE_LIBRARY_OUTPUT_DIRECTORY=/tmp", "sets CMAKE_LIBRARY_OUTPUT_DIRECTORY itself"),
        (Backend.CPU, "GGML_AVX521=ON", "no option GGML_AVX521"),
        (Backend.CPU, "GGML_AVX512=OFF", "GGML_AVX512 has no effect where"),
    ],
)
def test_contradicting_options_are_refused(tmp_path: Path, backend: Backend, added: str, reason: str) -> None:
    root = plant(tmp_path, "0.3.36", "option(GGML_RPC it OFF)", "option(GGML_STATIC it OFF)")
    with pytest.raises(SourceError, match=reason):
        options(root, backend, added=(added,))


def test_an_option_of_the_user_replaces_what_was_chosen(tmp_path: Path) -> None:
    added = (
        *("CMAKE_BUILD_TYPE=Debug", "CMAKE_CXX_FLAGS=-O1"),
        *("GGML_AVX512=OFF", "GGML_CUDA=0", "GGML_NATIVE=OFF"),
    )
    root = plant(tmp_path, "0.3.36")
    plain, chosen = options(root), options(root, added=added)
    assert chosen == plain | dict(word.split("=") for word in added)


def test_cuda_backends_are_plugins_where_the_tree_knows_them(tmp_path: Path) -> None:
    root, old = plant(tmp_path, "0.3.36"), plant(tmp_path / "old", "b3642")
    assert (recipes.has_plugins(root), recipes.has_plugins(old)) == (True, False)
    chosen = options(root, Backend.CUDA, cpu=CPU, architectures=("80", "90"))
    assert chosen["GGML_BACKEND_DL"] == "ON"
    assert chosen["CMAKE_CUDA_ARCHITECTURES"] == "80;90"
    assert (chosen["GGML_NATIVE"], chosen["GGML_AVX2"]) == ("OFF", "ON")  # the two exclude each other
    assert "GGML_CPU_ALL_VARIANTS" not in chosen
    assert not {"GGML_BACKEND_DL", "CMAKE_CUDA_ARCHITECTURES"} & options(old, Backend.CUDA, cpu=CPU).keys()
    for backend in set(Backend) - {Backend.CUDA}:
        assert "GGML_BACKEND_DL" not in options(root, backend, cpu=CPU)


def made_of_wheels(tmp_path: Path, *, links_driver: bool) -> Toolkit:
    wheels = Wheels(release=(13, 0), files={}, licences={})
    home = tmp_path / "cuda"
    return Toolkit(
        nvcc=home / "bin" / "nvcc", release=(13, 0), home=home, wheels=wheels, links_driver=links_driver
    )


@pytest.mark.parametrize(("links_driver", "no_vmm"), [(True, None), (False, "ON")])
def test_a_toolkit_of_wheels_is_named(tmp_path: Path, *, links_driver: bool, no_vmm: str | None) -> None:
    toolkit = made_of_wheels(tmp_path, links_driver=links_driver)
    chosen = options(plant(tmp_path / "tree", "0.3.36"), Backend.CUDA, cpu=CPU, cuda=toolkit)
    assert chosen["CUDAToolkit_ROOT"] == str(tmp_path / "cuda")
    assert chosen["CMAKE_CUDA_COMPILER"] == str(tmp_path / "cuda" / "bin" / "nvcc")
    assert chosen.get("GGML_CUDA_NO_VMM") == no_vmm
    old = options(plant(tmp_path / "old", "b3642"), Backend.CUDA, cuda=toolkit)
    assert "GGML_CUDA_NO_VMM" not in old  # this tree does not know it


def test_a_toolkit_of_the_machine_is_found_by_cmake(tmp_path: Path) -> None:
    toolkit = Toolkit(nvcc=Path("/usr/local/cuda/bin/nvcc"), release=(12, 4), home=Path("/usr/local/cuda"))
    chosen = options(plant(tmp_path, "0.3.36"), Backend.CUDA, cpu=CPU, cuda=toolkit)
    assert not {"CUDAToolkit_ROOT", "CMAKE_CUDA_COMPILER", "GGML_CUDA_NO_VMM"} & chosen.keys()


@pytest.mark.parametrize(
    ("backend", "languages"), [(Backend.CPU, {"C", "CXX"}), (Backend.CUDA, {"C", "CXX", "CUDA"})]
)
def test_the_cache_precedes_every_compiler(tmp_path: Path, backend: Backend, languages: set[str]) -> None:
    root = plant(tmp_path, "0.3.36")
    chosen = options(root, backend, cpu=CPU, compiler_cache=Path("/usr/bin/ccache"))
    launchers = {f"CMAKE_{language}_COMPILER_LAUNCHER": "/usr/bin/ccache" for language in languages}
    assert {name: value for name, value in chosen.items() if "LAUNCHER" in name} == launchers
    assert chosen["GGML_CCACHE"] == "OFF"  # or the tree would put it there a second time
    assert "GGML_CCACHE" not in options(root, backend, cpu=CPU)


@pytest.mark.parametrize("era", ["b3642", "0.3.36"])
def test_named_features_leave_amx_out(tmp_path: Path, era: str) -> None:
    chosen = options(plant(tmp_path, era), cpu=frozenset({"SSE42", "AVX", "AVX512", "AMX_TILE"}))
    assert {name: value for name, value in chosen.items() if "AVX" in name or "SSE" in name} == {
        "GGML_SSE42": "ON",
        "GGML_AVX": "ON",
        "GGML_AVX2": "OFF",
        "GGML_AVX512": "ON",
    }
    assert chosen["GGML_NATIVE"] == "OFF"
    assert "GGML_AMX_TILE" not in chosen


def test_amx_as_a_backend_of_its_own_is_left_out_too(tmp_path: Path) -> None:
    root = plant(tmp_path, "b3642", "if (NOT DEFINED GGML_AMX)")
    assert options(root, cpu=frozenset({"AVX"}))["GGML_AMX"] == "OFF"
    assert "GGML_AMX" not in options(root)


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("option(GGML_CUDA)\n")
    with pytest.raises(SourceError, match="vulkan"):
        options(tmp_path, Backend.VULKAN)
    assert not {"GGML_NATIVE", "LLAMA_NATIVE"} & options(tmp_path).keys()  # it has neither


def test_only_what_lies_alone_forgets_where_it_was_linked() -> None:
    for alone, value in ((True, "OFF"), (False, "ON")):
        placed = recipes.layout(Path("/build/bin"), origin="$ORIGIN", alone=alone)
        assert f"CMAKE_INSTALL_RPATH_USE_LINK_PATH={value}" in placed
        assert "CMAKE_INSTALL_RPATH=$ORIGIN" in placed


# make -------------------------------------------------------------------------------------------------------


MAKE = {
    Backend.CPU: ("LLAMA_NO_METAL=1",),
    Backend.CUDA: ("LLAMA_CUDA=1", "CUDA_DOCKER_ARCH=sm_80"),
    Backend.METAL: ("LLAMA_METAL=1", "LLAMA_METAL_EMBED_LIBRARY=1"),
    Backend.VULKAN: ("LLAMA_VULKAN=1",),
    Backend.HIP: ("LLAMA_HIPBLAS=1",),
}


@pytest.mark.parametrize("backend", Backend)
def test_make_of_2024(tmp_path: Path, backend: Backend) -> None:
    # as of b3078, whose file names a worker that is there with RPC alone
    root = plant(tmp_path, "b2699", "ifdef LLAMA_RPC", "rpc-server: rpc-server.o", "endif")
    settings = CompileSettings(backend=backend, architectures=("80", "90"))
    targets = ("main", "speculative", "server", "llama-bench", "batched-bench", "quantize", "tokenize")
    assert recipes.make_words(root, settings) == (MAKE[backend], (*targets, "libllama.so"))


def test_make_finds_the_toolkit_of_the_compiler(tmp_path: Path) -> None:
    settings = CompileSettings(backend=Backend.CUDA, architectures=("native",))
    words, _ = recipes.make_words(plant(tmp_path, "b2699"), settings, Path("/opt/cuda-12"))
    folders = ("CUDA_PATH=/opt/cuda-12", "LDFLAGS=-L/opt/cuda-12/lib64/stubs")
    assert words[1:] == ("CUDA_DOCKER_ARCH=native", *folders)


def test_makefiles_before_cuda_had_its_name(tmp_path: Path) -> None:
    words, _ = recipes.make_words(plant(tmp_path, "b2500"), CompileSettings(backend=Backend.CUDA))
    assert words == ("LLAMA_CUBLAS=1", "CUDA_DOCKER_ARCH=all-major")


def test_make_looks_for_libraries_beside_its_programs(tmp_path: Path) -> None:
    toolkit = made_of_wheels(tmp_path, links_driver=True)
    settings = CompileSettings(backend=Backend.CUDA, architectures=("90",), cuda=toolkit)
    words, _ = recipes.make_words(plant(tmp_path / "tree", "b2699"), settings, toolkit.home)
    assert words[-1] == f"LDFLAGS=-L{tmp_path}/cuda/lib64/stubs -Wl,-rpath,'$$ORIGIN'"


def test_make_takes_no_options_of_cmake(tmp_path: Path) -> None:
    settings = CompileSettings(backend=Backend.CPU, added=("GGML_NATIVE=OFF",))
    with pytest.raises(SourceError, match="no options of CMake: -DGGML_NATIVE=OFF") as refused:
        recipes.make_words(plant(tmp_path, "b2699"), settings)
    assert "newer --version" in (refused.value.hint or "")


# Programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ({"main", "llama-cli", "llama-speculative"}, ("llama-cli", "llama-speculative")),  # main is a stub
        ({"llama-cli", "llama-completion", "llama-app"}, ("llama-completion",)),
        ({"server", "main", "speculative"}, ("main", "speculative", "server")),
        ({"ggml-rpc-server", "rpc-server", "main"}, ("main", "ggml-rpc-server")),
        ({"rpc-server", "main"}, ("main", "rpc-server")),
    ],
)
def test_of_each_program_the_newest_name_is_built(available: set[str], expected: tuple[str, ...]) -> None:
    assert recipes.programs(available) == expected


def test_a_tree_without_a_plain_program_is_refused() -> None:
    with pytest.raises(SourceError, match="llama-completion"):
        recipes.programs({"llama-server", "llama-speculative"})
