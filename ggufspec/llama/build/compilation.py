"""Compile a source tree to programs and libraries, with CMake and Ninja, or with make for older sources."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ggufspec import proc
from ggufspec.errors import BuildError
from ggufspec.llama.build import recipes, toolchain
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.cuda import copy_libraries
from ggufspec.llama.source.sources import Tree
from ggufspec.steps import BuildProgress, BuildStep, relay

_COUNTER = re.compile(r"^\[(\d+)/(\d+)\] ?(.*)")  # Ninja, with the NINJA_STATUS that toolchain sets
_COMPILE = re.compile(r"^\S*(?:cc|\+\+|clang|nvcc)\S* .*-o ")  # a command that make echoes
_LIBRARY = re.compile(r"^lib.*\.(?:so|dylib)(?:\.|$)")
_TELLING_LINES = 100  # earlier lines quote code that mentions many failures
_LAST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What was compiled: the options as the tree spells them, and the programs, the plain one first."""

    options: tuple[str, ...]
    programs: tuple[str, ...]


def compile_tree(
    tree: Tree, settings: CompileSettings, *, jobs: int, work: Path, log: Path
) -> Generator[BuildProgress, None, Compiled]:
    """Compile a tree; a second call with other settings compiles only what differs.

    Args:
        tree: a private copy, which is changed.
        settings: the backend, processor and tools of the build.
        jobs: the number of compilers that run at once.
        work: programs and libraries are put into its folder ``final/bin``.
        log: the output of the tools is appended.

    Raises:
        BuildError: a tool is missing or fails.
        SourceError: the tree does not know the backend.
    """
    environment = toolchain.environment(
        settings.backend,
        history=tree.history,
        cuda_compiler=settings.cuda.nvcc if settings.cuda else None,
        base=work if settings.compiler_cache else None,
    )
    if recipes.uses_make(tree.root):
        produced = tree.root
        compiled = yield from _by_make(tree.root, settings, jobs, log, environment)
    else:
        produced = work / "build" / "bin"
        compiled = yield from _by_cmake(tree.root, settings, produced, jobs, log, environment)
    final = work / "final" / "bin"
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir(parents=True)  # the folder that is tested differs from where programs were linked
    for path in produced.iterdir():
        if path.name in compiled.programs or _LIBRARY.match(path.name):
            shutil.copy2(path, final / path.name, follow_symlinks=False)
    if settings.cuda is not None and settings.cuda.wheels is not None:
        copy_libraries(settings.cuda.wheels, final)
    return compiled


def _by_make(
    root: Path, settings: CompileSettings, jobs: int, log: Path, environment: Mapping[str, str]
) -> Generator[BuildProgress, None, Compiled]:
    make = toolchain.tool("make", hint="install make: apt install make, or xcode-select --install")
    home = settings.cuda.home if settings.cuda else toolchain.cuda_home()
    options, targets = recipes.make_words(root, settings, home)
    words = [str(make), "-C", str(root), f"-j{jobs}", *options, *targets]
    _, plan, _ = proc.capture([*words, "--dry-run"], env=environment)
    total = sum(bool(_COMPILE.match(line)) for line in plan.splitlines())
    yield from _run(words, BuildStep.COMPILE, log, environment, total=total)
    return Compiled(options=options, programs=tuple(name for name in targets if not _LIBRARY.match(name)))


def _by_cmake(
    root: Path,
    settings: CompileSettings,
    produced: Path,
    jobs: int,
    log: Path,
    environment: Mapping[str, str],
) -> Generator[BuildProgress, None, Compiled]:
    cmake, ninja = str(toolchain.cmake()), str(toolchain.tool("ninja", hint=toolchain.TOOLS_HINT))
    folder = str(produced.parent)
    options = recipes.cmake_options(root, settings)
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    alone = settings.cuda is not None and settings.cuda.wheels is not None
    placed = recipes.layout(produced, origin=origin, alone=alone)
    definitions = [f"-D{option}" for option in (*options, f"CMAKE_MAKE_PROGRAM={ninja}", *placed)]
    configure = [cmake, "-S", str(root), "-B", folder, "-G", "Ninja", *definitions]
    yield from _run(configure, BuildStep.CONFIGURE, log, environment)
    _, offered, _ = proc.capture([ninja, "-C", folder, "-t", "targets", "all"], env=environment)
    programs = recipes.programs(line.partition(":")[0] for line in offered.splitlines())
    yield from _run([ninja, "-C", folder, f"-j{jobs}", *programs], BuildStep.COMPILE, log, environment)
    return Compiled(options=options, programs=programs)


def _run(
    words: Sequence[str],
    step: BuildStep,
    log: Path,
    environment: Mapping[str, str],
    *,
    total: int | None = None,
) -> Generator[BuildProgress, None, None]:
    """Run one tool and count what it has done, in Ninja's own numbers or in make's commands."""
    done = 0

    def report(line: str) -> BuildProgress:
        nonlocal done, total
        if counter := _COUNTER.match(line):
            done, total, line = int(counter[1]), int(counter[2]), counter[3]
        elif total and _COMPILE.match(line):
            done = min(done + 1, total)
        return BuildProgress(step=step, done=done, total=total, line=line)

    completed = yield from relay(proc.stream(words, log=log, env=environment), report)
    if completed.returncode != 0:
        last = "\n".join(f"  {line[:200]}" for line in completed.tail[-_LAST_LINES:])
        ending = completed.signal or f"exit {completed.returncode}"
        raise BuildError(
            f"llama.cpp did not {step} ({ending}); the log is {log}\n{last}",
            diagnose("\n".join(completed.tail[-_TELLING_LINES:])),
        )


_HINTS: Mapping[str, str] = {
    r"No space left on device|[Dd]isk quota exceeded": "free some disk space, or set GGUFSPEC_CACHE",
    r"Killed signal terminated|fatal error: Killed|virtual memory exhausted|[Oo]ut of memory": (
        "the compiler ran out of memory: build with fewer --jobs"
    ),
    r"No CMAKE_CX*_COMPILER could be found|(?:cc|c\+\+|g\+\+|gcc): (?:command )?not found": (
        "install a C++ compiler (apt install g++, dnf install gcc-c++), or use --prebuilt, which needs none"
    ),
    r"[Uu]nsupported gpu architecture": (
        "this CUDA toolkit does not know that GPU: name another with --cuda-arch (or CUDAARCHS)"
    ),
    r"unsupported GNU version|host_config\.h.*#error": (
        "this CUDA toolkit wants an older host compiler: apt install g++-12, then CUDAHOSTCXX=g++-12"
    ),
    r"No CMAKE_CUDA_COMPILER could be found|CUDA Toolkit not found|nvcc: (?:command )?not found": (
        "put nvcc on PATH, or pip install 'ggufspec[cuda-build]'; --backend cpu works without it"
    ),
    r"cannot find -lcuda\b|libcuda\.so": (
        "NVIDIA's driver library is missing: install the driver, or build a version that works without it"
    ),
    r"Could NOT find CURL|curl/curl\.h": (
        "install libcurl's development files: apt install libcurl4-openssl-dev"
    ),
    r"glslc|Could NOT find Vulkan|vulkan/vulkan\.hpp": (
        "install the Vulkan SDK with glslc: apt install libvulkan-dev glslc"
    ),
    r"hip-lang|provided by \"hip|No CMAKE_HIP_COMPILER": "install ROCm; --backend cpu works without it",
    r"xcrun: error|unable to find utility \"metal\"": (
        "install Xcode's command-line tools: xcode-select --install"
    ),
}
"""Pattern -> what to do, the most specific first: one failure often causes others."""

FALLBACK = "read the log, or try another --version or --backend"


def diagnose(log: str) -> str:
    """Return the hint that fits the log of a failed build."""
    return next((hint for pattern, hint in _HINTS.items() if re.search(pattern, log)), FALLBACK)
