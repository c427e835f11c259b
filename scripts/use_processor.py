"""Let llama.cpp compute as on another x86 processor, to test here what only that one would show.

    GGUFSPEC_CACHE=COPY python scripts/use_processor.py v3

Replaces libggml-cpu in the build that `ggufspec build` makes. It is compiled with GGML_NATIVE=OFF for

- v2: x86-64-v2 (SSE4.2)
- v3: x86-64-v3 (AVX2, FMA, F16C, BMI2)
- v4: x86-64-v4 (AVX-512)
- native: all features of this processor, named one by one

Nothing else is compiled, which takes half a minute. Kernels of other instruction sets add in another order,
and so decide near-ties otherwise. The changed build counts as intact: give this a copy of the cache. Where
this processor lacks a feature, the exit code is 3, and what it lacks is printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ggufspec.errors import GgufspecError
from ggufspec.llama.build import recipes, request_build, toolchain
from ggufspec.llama.build.building import BuildRequest
from ggufspec.llama.build.recipes import CompileSettings
from ggufspec.llama.install import Backend, Built, environment, store
from ggufspec.llama.source import sources
from ggufspec.llama.source.sources import Source
from ggufspec.options import BuildOptions
from ggufspec.steps import finish

LIBRARY = "libggml-cpu"
LACKING = 3
_V2 = frozenset({"SSE42"})
_V3 = _V2 | {"AVX", "AVX2", "FMA", "F16C", "BMI2"}
LEVELS = {"v2": _V2, "v3": _V3, "v4": _V3 | {"AVX512"}}
"""Name -> its features, in the words of llama.cpp's options."""


def compile_library(source: Source, features: frozenset[str], work: Path) -> list[Path]:
    """Compile the library for a processor; return its file and the links to it.

    Args:
        source: of the build.
        features: of the processor.
        work: an empty folder.

    Raises:
        GgufspecError: the source is not available.
        CalledProcessError: it does not compile.
    """
    (work / "source").mkdir()
    tree = finish(sources.prepare_tree(source, work / "source", work / "log"))
    settings = CompileSettings(
        backend=Backend.CPU, cpu=features, compiler_cache=toolchain.compiler_cache(), commit=tree.commit
    )
    made, ninja = work / "build", str(toolchain.tool("ninja", hint=toolchain.TOOLS_HINT))
    chosen = (
        *recipes.cmake_options(tree.root, settings),
        *recipes.layout(made / "bin", origin="$ORIGIN"),
        f"CMAKE_MAKE_PROGRAM={ninja}",
    )
    words = (str(toolchain.cmake()), "-S", str(tree.root), "-B", str(made), "-G", "Ninja")
    environment = toolchain.environment(Backend.CPU, history=tree.history, base=work)
    for command in ((*words, *(f"-D{option}" for option in chosen)), (ninja, "-C", str(made), "ggml-cpu")):
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    return sorted((made / "bin").glob(f"{LIBRARY}.*"))


def replace_library(built: Built, files: list[Path]) -> None:
    """Put a library into a build in the place of its own, and record that as its content."""
    for old in built.bin.glob(f"{LIBRARY}.*"):
        old.unlink()
    for file in files:
        shutil.copy2(file, built.bin, follow_symlinks=False)
    store.record_files(built)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("processor", choices=(*LEVELS, "native"))
    name = parser.parse_args().processor
    features = LEVELS.get(name, environment.cpu_features())
    lacking = features - environment.cpu_features()
    if lacking or not environment.is_x86():
        print(f"this processor lacks {', '.join(sorted(lacking)) or 'the instructions of x86'}")
        return LACKING
    request, _ = request_build(BuildOptions())
    assert isinstance(request, BuildRequest)  # no archive was asked for
    built = store.find_build(request.key())
    if built is None:
        print("error: no llama.cpp is there\nhint: run `ggufspec build`", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as work:
        try:
            replace_library(built, compile_library(request.source, features, Path(work)))
        except GgufspecError as error:
            print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
            return 1
    print(f"{built.bin}: {LIBRARY} for {', '.join(sorted(features))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
