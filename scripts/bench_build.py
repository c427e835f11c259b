"""How long a build takes over a bare CMake build of the same targets, and what could make it shorter.

    python scripts/bench_build.py [--source PATH] [--version V] [--variants bare,ours,unity] [--work FOLDER]

Every variant compiles the same copy of the source from nothing, with Ninja and as many jobs:

- bare: a Release build with what this machine needs to compile at all, and no other option
- ours: the options of `ggufspec build`
- unity: ours, with several files compiled as one (CMAKE_UNITY_BUILD)
- pch: ours, with the C++ standard library's headers precompiled
- cold, warm: ours behind ccache or sccache with an empty cache, and again with what that left

The last row is the complete `ggufspec build` from the same source: unpacking and testing included. Each row
has its seconds and their ratio to bare (wanted: at most 1.05 for the complete build), and whether the
embedded target writes the same text as by the bare build. A variant that does not compile is named. What is
kept must also be as fast:

    ggufspec bench --pair demo --llama WORK/bare/bin --llama WORK/pch/bin

The exit code is 1 where the complete build misses its ratio, or a text differs. One compilation takes some
ten minutes on two cores, and there are seven.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import terminal

from ggufspec import paths, steps
from ggufspec.errors import GgufspecError
from ggufspec.llama.build import recipes, toolchain
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.install import Backend
from ggufspec.llama.source import sources

WANTED = 1.05
VARIANTS = ("bare", "ours", "unity", "pch", "cold", "warm")
_CACHED = {"cold", "warm"}
_NETWORK = ("LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_UI", "LLAMA_BUILD_WEBUI", "LLAMA_USE_PREBUILT_UI")
"""Options without which a tree downloads, or needs libraries that most machines lack."""

_HEADERS = ("algorithm", "cstdint", "functional", "map", "memory", "string", "unordered_map", "vector")
_PRECOMPILE = """\
function(precompile_all folder)
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
        get_target_property(type ${target} TYPE)
        if(type MATCHES "LIBRARY|EXECUTABLE" AND NOT type STREQUAL "INTERFACE_LIBRARY")
            target_precompile_headers(${target} PRIVATE HEADERS)
        endif()
    endforeach()
    get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
    foreach(one IN LISTS folders)
        precompile_all(${one})
    endforeach()
endfunction()
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    cmake_language(DEFER DIRECTORY ${CMAKE_SOURCE_DIR} CALL precompile_all ${CMAKE_SOURCE_DIR})
endif()
"""
_PROMPT = "Once upon a time"


def main() -> int:
    options = _options()
    work = options.work or Path(tempfile.mkdtemp(prefix="ggufspec-bench-build-"))
    tree = _copy_source(options.source, options.version, work / "source")
    if recipes.uses_make(tree.root):
        sys.exit(f"{tree.root} is built with make: there is no CMake build to compare with")
    jobs = options.jobs or toolchain.default_jobs()
    cache = toolchain.compiler_cache()
    variants = [name for name in options.variants if cache is not None or name not in _CACHED]
    if len(variants) < len(options.variants):
        print("neither ccache nor sccache is on PATH: cold and warm are left out")
    seconds: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name in variants:
        try:
            seconds[name] = compile_variant(name, tree, work, cache=cache, jobs=jobs)
        except subprocess.CalledProcessError:
            print(f"{name:<16} does not compile: {work / name / 'build.log'}", flush=True)
            continue
        texts[name] = write_text(work / name / "bin")
        print_row(name, seconds, texts)
    seconds["ggufspec build"], folder = build_completely(options.source, options.version, work, jobs)
    texts["ggufspec build"] = write_text(folder)
    print_row("ggufspec build", seconds, texts)
    first = next(iter(seconds))
    is_equal = len(set(texts.values())) == 1
    is_fast = first != "bare" or seconds["ggufspec build"] <= WANTED * seconds["bare"]
    return int(not (is_equal and is_fast))


def print_row(name: str, seconds: Mapping[str, float], texts: Mapping[str, str]) -> None:
    """Print one variant's seconds, their ratio to the first variant, and whether it writes the same text."""
    first = next(iter(seconds))
    text = "same text" if texts[name] == texts[first] else "OTHER TEXT"
    print(
        f"{name:<16} {seconds[name]:7.1f} s  {seconds[name] / seconds[first]:6.3f} x {first}  {text}",
        flush=True,
    )


def definitions(name: str, tree: sources.Tree, folder: Path, cache: Path | None) -> tuple[str, ...]:
    """Return CMake's definitions of a variant, each as ``NAME=VALUE``; ``pch`` writes a file for them."""
    launcher = cache if name in _CACHED else None
    ours = recipes.cmake_options(
        tree.root,
        CompileSettings(backend=Backend.CPU, compiler_cache=launcher, number=tree.number, commit=tree.commit),
    )
    placed = (*recipes.layout(folder / "bin", origin="$ORIGIN"), "GGML_CCACHE=OFF")
    if name == "bare":
        return ("CMAKE_BUILD_TYPE=Release", *(option for option in ours if _is_needed(option)), *placed)
    if name == "unity":
        return (*ours, *placed, "CMAKE_UNITY_BUILD=ON")
    if name == "pch":
        file = folder / "precompile.cmake"
        headers = " ".join(f'"$<$<COMPILE_LANGUAGE:CXX>:<{header}$<ANGLE-R>>"' for header in _HEADERS)
        file.write_text(_PRECOMPILE.replace("HEADERS", headers))
        return (*ours, *placed, f"CMAKE_PROJECT_INCLUDE={file}")
    return (*ours, *placed)


def _is_needed(option: str) -> bool:
    return option.partition("=")[0] in {*_NETWORK, "CMAKE_POLICY_VERSION_MINIMUM"}


def compile_variant(name: str, tree: sources.Tree, work: Path, *, cache: Path | None, jobs: int) -> float:
    """Configure and compile one variant from nothing; return the seconds.

    Raises:
        CalledProcessError: it does not compile.
    """
    folder = work / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name == "cold":
        shutil.rmtree(work / "cache", ignore_errors=True)
    base = toolchain.environment(Backend.CPU, history=tree.history, base=work if cache else None)
    environment = {**base, "CCACHE_DIR": str(work / "cache"), "SCCACHE_DIR": str(work / "cache")}
    if cache is not None and cache.name == "sccache" and name in _CACHED:
        subprocess.run([cache, "--stop-server"], capture_output=True, check=False)  # it keeps its folder
    cmake, ninja = str(toolchain.cmake()), str(toolchain.tool("ninja", hint=toolchain.TOOLS_HINT))
    flags = [f"-D{one}" for one in definitions(name, tree, folder, cache)]
    build = str(folder)  # llama.cpp's tree puts programs into the build folder's own bin, whatever is asked
    log = folder / "build.log"
    started = time.perf_counter()
    _run(
        [cmake, "-S", str(tree.root), "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *flags],
        environment,
        log,
    )
    offered = subprocess.check_output(
        [ninja, "-C", build, "-t", "targets", "all"], text=True, env=environment
    )
    targets = recipes.programs(line.partition(":")[0] for line in offered.splitlines())
    _run([ninja, "-C", build, f"-j{jobs}", *targets], environment, log)
    return time.perf_counter() - started


def build_completely(source: Path | None, version: str | None, work: Path, jobs: int) -> tuple[float, Path]:
    """Run ``ggufspec build`` with no build in its cache; return its seconds and the folder of programs."""
    home = work / "complete"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    if paths.sources_dir().is_dir():
        (home / "sources").symlink_to(paths.sources_dir())  # downloads are not timed
    words = ["build", "--backend", "cpu", "--jobs", str(jobs)]
    words += ["--source", str(source)] if source else []
    words += ["--version", version] if version else []
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "ggufspec", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "GGUFSPEC_CACHE": str(home), "CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"},
    )
    return time.perf_counter() - started, Path(done.stdout.strip().splitlines()[-1])


def write_text(folder: Path) -> str:
    """Return what the embedded target writes by a build's plain program, without sampling."""
    program = next(folder / name for name in recipes.PROGRAMS[0] if (folder / name).exists())
    model = paths.models_dir() / "demo" / "target.gguf"
    words = [str(program), "-m", str(model), "-p", _PROMPT, "-n", "64", "-c", "256", "-t", "1", "--temp", "0"]
    chat = [] if program.name == "main" else ["-no-cnv"]
    done = subprocess.run(
        [*words, *chat], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return done.stdout


def _copy_source(source: Path | None, version: str | None, into: Path) -> sources.Tree:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    chosen = sources.choose_source(str(source) if source else None, version)
    return steps.finish(sources.prepare_tree(chosen, into, into.with_suffix(".log")))


def _run(words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    with log.open("ab") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=environment, check=True)


def _options() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--source", type=Path, help="a source tree or archive (default: the package index)")
    parser.add_argument("--version", help="of llama-cpp-python (default: as for `ggufspec build`)")
    parser.add_argument("--variants", type=_variants, default=VARIANTS, help=f"of {','.join(VARIANTS)}")
    parser.add_argument("--work", type=Path, help="folder for everything (default: a new one)")
    parser.add_argument("--jobs", type=int, help="compilers at once (default: as for `ggufspec build`)")
    options = parser.parse_args()
    if options.work is not None:
        options.work = options.work.absolute()
    return options


def _variants(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of {', '.join(VARIANTS)}")
    return names


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GgufspecError as error:
        sys.exit(error.message)
