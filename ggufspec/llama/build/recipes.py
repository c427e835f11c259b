"""Build options for every era of llama.cpp, chosen by the tree's own build files.

Up to b3141 a tree has a Makefile with a target ``main`` and is built with it; later trees are built with
CMake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec import paths
from ggufspec.choices import Backend
from ggufspec.errors import SourceError
from ggufspec.llama.build.toolkit import Toolkit
from ggufspec.llama.install import environment

REVISION = 2
"""Increased when a change of these recipes requires builds to be made again."""

BACKENDS: Mapping[Backend, tuple[str, ...]] = {
    Backend.CPU: (),
    Backend.CUDA: ("GGML_CUDA", "LLAMA_CUDA", "LLAMA_CUBLAS"),
    Backend.METAL: ("GGML_METAL", "LLAMA_METAL"),
    Backend.VULKAN: ("GGML_VULKAN", "LLAMA_VULKAN"),
    Backend.HIP: ("GGML_HIP", "GGML_HIPBLAS", "LLAMA_HIPBLAS"),
}
"""Backend -> spellings of its option, newest first. Old spellings may be errors in newer trees."""

SWITCHES: Mapping[str, tuple[str, ...]] = {
    "ON": (
        *("LLAMA_BUILD_COMMON", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_SERVER"),
        *("GGML_RPC", "LLAMA_RPC"),  # off by default (from b2877), but on in llama.cpp's own releases
    ),
    "OFF": (
        "LLAMA_BUILD_TESTS",
        "LLAMA_CURL",  # on by default from b5064 to b7735, and then needs libcurl
        "LLAMA_OPENSSL",
        "LLAMA_BUILD_APP",
        "LLAMA_BUILD_WEBUI",
        "LLAMA_BUILD_UI",
        "LLAMA_USE_PREBUILT_UI",  # would download
    ),
}
"""Value -> options that get it, if the tree has them."""

PROGRAMS: tuple[tuple[str, ...], ...] = (
    ("llama-completion", "llama-cli", "main"),
    ("llama-speculative", "speculative"),
    ("llama-speculative-simple",),
    ("llama-server", "server"),
    ("llama-bench",),
    ("llama-batched-bench", "batched-bench"),
    ("llama-quantize", "quantize"),
    ("llama-tokenize", "tokenize"),
    ("ggml-rpc-server", "rpc-server"),  # lends this machine's devices to a llama.cpp elsewhere
)
"""Programs to build: of each row, the first that the tree has."""

CUDA_REVISION = 2
"""As REVISION, for CUDA builds only."""

PLUGINS = "GGML_BACKEND_DL"
"""Backends as plug-ins: without a driver, the programs still start and compute on the CPU."""

NO_VMM = "GGML_CUDA_NO_VMM"
"""CUDA without functions of the driver, for machines without a driver to link against."""

_NATIVE = ("GGML_NATIVE", "LLAMA_NATIVE")
_EMBED_METAL = ("GGML_METAL_EMBED_LIBRARY", "LLAMA_METAL_EMBED_LIBRARY")
_X86 = (
    *("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2", "AVX_VNNI"),
    *("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"),
)
_OPTION = re.compile(r"^\s*option\s*\(\s*(\w+)", re.MULTILINE)
_TARGET = re.compile(r"^([\w.-]+):", re.MULTILINE)
_FORM = re.compile(r"-D([A-Za-z_]\w*)=(.*)")
_OWN_PREFIXES = ("GGML_", "LLAMA_")
"""How llama.cpp's own options begin. One that its tree does not mention is misspelt, and without effect."""

_PLACES = re.compile(
    r"CMAKE_((RUNTIME|LIBRARY)_OUTPUT_DIRECTORY|(BUILD_WITH_)?INSTALL_RPATH\w*|MAKE_PROGRAM)"
)
"""Options for where a build lies and what makes it, which are the same for every tree."""

_WORD = re.compile(r"\w+")
_TRUE, _FALSE = {"ON", "1", "YES", "TRUE", "Y"}, {"OFF", "0", "NO", "FALSE", "N"}  # CMake's own spellings


@dataclass(frozen=True, kw_only=True)
class CompileSettings:
    """What to compile for, independent of the spelling of options in each era.

    ``cpu``: the processor features to enable; None to compile for this processor.
    ``architectures``: CUDA's compute capabilities ("90", "native"); empty for the tree's default.
    ``cuda``: the toolkit; None to let the tree find one. ``compiler_cache``: the path of ccache or sccache.
    ``added``: options of CMake that the user adds, as ``NAME=VALUE``.
    """

    backend: Backend
    cpu: frozenset[str] | None = None
    architectures: tuple[str, ...] = ()
    cuda: Toolkit | None = None
    compiler_cache: Path | None = None
    number: int | None = None
    commit: str | None = None
    added: tuple[str, ...] = ()


def uses_make(root: Path) -> bool:
    """Whether a tree is built with its Makefile."""
    targets = _make_targets(root)
    return "main" in targets and "llama-cli" not in targets


def make_words(
    root: Path, settings: CompileSettings, cuda_home: Path | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return make's variables and its targets.

    Args:
        root: a tree for which ``uses_make`` holds.
        settings: what to build.
        cuda_home: the CUDA toolkit; None for the Makefile's default.

    Raises:
        SourceError: the tree does not know the backend, or options of CMake are added.
    """
    if words := [f"-D{definition}" for definition in settings.added]:
        raise SourceError(
            f"this llama.cpp is built with make, which takes no options of CMake: {' '.join(words)}",
            "leave --cmake out, or choose a newer --version",
        )
    text = (root / "Makefile").read_text(encoding="utf-8", errors="replace")
    variables: dict[str, str] = {}
    if settings.backend is Backend.CPU:
        variables["LLAMA_NO_METAL"] = "1"  # on a Mac, Metal is the default
    else:
        switch = _first(BACKENDS[settings.backend], re.findall(r"^ifdef (\w+)", text, re.MULTILINE))
        if switch is None:
            raise _unknown(settings.backend)
        variables[switch] = "1"
    if settings.backend is Backend.METAL:
        variables["LLAMA_METAL_EMBED_LIBRARY"] = "1"
    if settings.backend is Backend.CUDA:
        # only one architecture: the oldest GPU's, whose PTX newer GPUs translate
        oldest = settings.architectures[0] if settings.architectures else "all-major"
        variables["CUDA_DOCKER_ARCH"] = oldest if oldest in {"native", "all-major"} else f"sm_{oldest}"
        if cuda_home is not None:
            variables |= {"CUDA_PATH": str(cuda_home), "LDFLAGS": f"-L{cuda_home}/lib64/stubs"}
        if settings.cuda is not None and settings.cuda.wheels is not None:
            variables["LDFLAGS"] += (
                " -Wl,-rpath,'$$ORIGIN'"  # make and its shell each remove one level of quoting
            )
    targets = _make_targets(root).difference(PROGRAMS[-1])  # named in the file, but there with RPC alone
    library = ("libllama.so",) if "libllama.so" in targets else ()
    return tuple(f"{name}={value}" for name, value in variables.items()), (*programs(targets), *library)


def cmake_options(root: Path, settings: CompileSettings) -> tuple[str, ...]:
    """Return the definitions for CMake, each as ``NAME=VALUE``.

    Raises:
        SourceError: the tree does not know the backend, or an option that the user adds cannot be added.
    """
    options = _options(root)
    chosen: dict[str, str] = {"BUILD_SHARED_LIBS": "ON"}
    for value, names in SWITCHES.items():
        chosen |= {name: value for name in names if name in options}
    for backend, spellings in BACKENDS.items():
        switch = _first(spellings, options)
        if backend is settings.backend and spellings and switch is None:
            raise _unknown(backend)
        if switch is not None:
            chosen[switch] = "ON" if backend is settings.backend else "OFF"
    if settings.backend is Backend.METAL and (embed := _first(_EMBED_METAL, options)):
        chosen[embed] = "ON"
    if settings.backend is Backend.CUDA:
        chosen |= _cuda(options, settings)
    top = paths.text_of(root / "CMakeLists.txt")
    if "NOT DEFINED LLAMA_BUILD_NUMBER" in top:
        chosen["LLAMA_BUILD_NUMBER"] = str(settings.number or 0)
        chosen["LLAMA_BUILD_COMMIT"] = settings.commit[:9] if settings.commit else "unknown"
    needed = {  # of every tree, whatever its options are called there
        **{name: "OFF" for spellings in BACKENDS.values() for name in spellings},
        **dict.fromkeys(BACKENDS[settings.backend], "ON"),
        **dict.fromkeys(("GGML_STATIC", "LLAMA_STATIC"), "OFF"),  # the in-process engine loads the library
        **chosen,
    }
    chosen |= {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # old trees require a version that CMake 4 no longer supports
    }
    if settings.compiler_cache is not None:
        languages = ("C", "CXX", "CUDA") if settings.backend is Backend.CUDA else ("C", "CXX")
        chosen |= {
            f"CMAKE_{language}_COMPILER_LAUNCHER": str(settings.compiler_cache) for language in languages
        }
        if "GGML_CCACHE" in options:
            chosen["GGML_CCACHE"] = "OFF"  # otherwise old trees call it twice
    chosen |= _cpu(options, settings)
    if settings.cpu is not None and "NOT DEFINED GGML_AMX)" in top:
        chosen["GGML_AMX"] = "OFF"  # for a while AMX was a separate backend, on by default
    if settings.added:
        _check_features(options, settings.added)
        chosen = add_definitions(root, chosen, settings.added, needed)
    return tuple(f"{name}={value}" for name, value in chosen.items())


def has_plugins(root: Path) -> bool:
    """Whether a tree's backends can be plug-ins; on x86 that excludes compiling for this processor."""
    return PLUGINS in _options(root)


def layout(bin_dir: Path, *, origin: str, alone: bool = False) -> tuple[str, ...]:
    """Return the definitions that put programs and libraries into one relocatable folder.

    Args:
        bin_dir: where the build writes both.
        origin: what the loader calls a program's own folder ("$ORIGIN" on Linux).
        alone: all libraries are in that folder; otherwise CUDA's are loaded from where they were linked.
    """
    return (
        f"CMAKE_RUNTIME_OUTPUT_DIRECTORY={bin_dir}",
        f"CMAKE_LIBRARY_OUTPUT_DIRECTORY={bin_dir}",
        f"CMAKE_INSTALL_RPATH={origin}",
        "CMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        f"CMAKE_INSTALL_RPATH_USE_LINK_PATH={'OFF' if alone else 'ON'}",
    )


def programs(available: Iterable[str]) -> tuple[str, ...]:
    """Return the programs to build, of those that a tree offers.

    Raises:
        SourceError: none of them is a plain program.
    """
    offered = set(available)
    chosen = [name for names in PROGRAMS if (name := _first(names, offered))]
    if not chosen or chosen[0] not in PROGRAMS[0]:
        raise SourceError(
            f"the tree builds none of {', '.join(PROGRAMS[0])}", "is it a complete tree of llama.cpp?"
        )
    return tuple(chosen)


def _cuda(options: frozenset[str], settings: CompileSettings) -> dict[str, str]:
    chosen: dict[str, str] = {}
    if settings.architectures:
        chosen["CMAKE_CUDA_ARCHITECTURES"] = ";".join(settings.architectures)
    if PLUGINS in options and (settings.cpu is not None or not environment.is_x86()):
        chosen[PLUGINS] = "ON"
    if settings.cuda is not None and settings.cuda.wheels is not None:
        chosen["CUDAToolkit_ROOT"] = str(settings.cuda.home)
        chosen["CMAKE_CUDA_COMPILER"] = str(settings.cuda.nvcc)
    if settings.cuda is not None and not settings.cuda.links_driver and NO_VMM in options:
        chosen[NO_VMM] = "ON"
    return chosen


def _cpu(options: frozenset[str], settings: CompileSettings) -> dict[str, str]:
    native = _first(_NATIVE, options)
    if native is None:
        return {}
    if settings.cpu is None:
        return {native: "ON"}
    prefix = native.removesuffix("NATIVE")
    named = {
        prefix + feature: "ON" if feature in settings.cpu else "OFF"
        for feature in _X86
        if prefix + feature in options
    }
    return {native: "OFF", **named}


def _check_features(options: frozenset[str], added: Iterable[str]) -> None:
    """Make sure that features of the processor are not added where the compiler chooses them itself.

    Raises:
        SourceError: they would have no effect.
    """
    native = _first(_NATIVE, options)
    names = {definition.partition("=")[0] for definition in added}
    if native is None or native in names:
        return
    features = {native.removesuffix("NATIVE") + feature for feature in _X86}
    if ignored := sorted(names & features):
        raise SourceError(
            f"{', '.join(ignored)} has no effect where llama.cpp is compiled for this processor",
            f"add --cmake=-D{native}=OFF",
        )


def _options(root: Path) -> frozenset[str]:
    """Return every option that the tree declares, in its own CMake files down to the second folder."""
    files = (path for depth in ("", "*/", "*/*/") for path in root.glob(f"{depth}CMakeLists.txt"))
    return frozenset(name for path in files for name in _OPTION.findall(paths.text_of(path)))


def _make_targets(root: Path) -> frozenset[str]:
    return frozenset(_TARGET.findall(paths.text_of(root / "Makefile")))


def _first(spellings: Iterable[str], options: Iterable[str]) -> str | None:
    offered = set(options)
    return next((name for name in spellings if name in offered), None)


def _unknown(backend: Backend) -> SourceError:
    return SourceError(
        f"this llama.cpp has no known {backend.value} backend", "choose another --backend or --version"
    )


def parse_definitions(words: Iterable[str]) -> tuple[str, ...]:
    """Return options of CMake as ``NAME=VALUE``, sorted by name.

    Args:
        words: each of the form ``-DNAME=VALUE``.

    Raises:
        ValueError: one has another form, or a name is given twice.
    """
    values: dict[str, str] = {}
    for word in words:
        match = _FORM.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is not of the form -DNAME=VALUE")
        name, value = match.groups()
        if name in values:
            raise ValueError(f"{name} is given twice")
        values[name] = value
    return tuple(f"{name}={values[name]}" for name in sorted(values))


def add_definitions(
    root: Path, chosen: Mapping[str, str], added: Iterable[str], needed: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of a build with those that a user adds, which replace what was chosen.

    Args:
        root: the tree.
        chosen: what the build sets itself.
        added: as ``parse_definitions`` returns them.
        needed: names -> values without which the build would not be what was asked for.

    Raises:
        SourceError: one contradicts what is needed, has no effect, or is unknown to the tree.
    """
    values = dict(definition.split("=", 1) for definition in added)
    mentioned: set[str] = set()
    if any(name.startswith(_OWN_PREFIXES) for name in values):
        for pattern in ("CMakeLists.txt", "*.cmake"):
            mentioned.update(*(_WORD.findall(paths.text_of(path)) for path in root.rglob(pattern)))
    for name, value in values.items():
        if name.startswith(_OWN_PREFIXES) and name not in mentioned:
            raise SourceError(
                f"this llama.cpp has no option {name}", "ggml/CMakeLists.txt of its source lists its options"
            )
        if _PLACES.fullmatch(name):
            raise SourceError(f"ggufspec sets {name} itself", "leave it out")
        if name in needed and not _equal(value, needed[name]):
            raise SourceError(
                f"-D{name}={value} contradicts what the build needs: {name}={needed[name]}",
                "leave it out; --backend and --cuda-arch choose the backend and its GPUs",
            )
    return {**chosen, **values}


def _equal(value: str, needed: str) -> bool:
    upper = value.upper()
    return value == needed or (needed == "ON" and upper in _TRUE) or (needed == "OFF" and upper in _FALSE)
