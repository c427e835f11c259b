"""The environment in which llama.cpp's programs run, and the processor that runs them.

Of the user's variables they get those that programs need, and tuning switches. They get no others: none
of llama.cpp's own settings (``LLAMA_…``), so that only the command line decides what is measured, and no
secrets. Variables that may change a speed are stored with each bench.

A thread of its own writes a program's log, and the figures come last. Newer programs do not wait for this
thread when they end (ggml-org/llama.cpp#22142), so a busy processor may cost them. Their header says to call
``common_log_flush`` first. A small library that is loaded into the program does that when it ends: on Linux,
where a C compiler is at hand, and for programs that share the logger.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ggufspec import paths, proc, temporary
from ggufspec.errors import ChildCrashedError
from ggufspec.redaction import is_secret

_ALIKE = "avx avx2 fma f16c bmi2 avx_vnni avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16 i8mm sve"
_FEATURES = {name: name.upper() for name in _ALIKE.split()} | {
    "sse4_2": "SSE42",
    "avx512vbmi": "AVX512_VBMI",
    "asimddp": "DOTPROD",
}
"""Name of the system -> name in llama.cpp's options."""

_AVX512 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


def cpu_features(text: str | None = None) -> frozenset[str]:
    """Return the processor's features that llama.cpp has code for, as its options name them.

    Args:
        text: the content of /proc/cpuinfo, for another machine than this one.
    """
    if text is None:
        text = paths.text_of(Path("/proc/cpuinfo"))
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    named = {option for flag, option in _FEATURES.items() if flag in flags}
    return frozenset(named | ({"AVX512"} if flags >= _AVX512 else set()))


def is_x86() -> bool:
    """Whether this is an x86 processor."""
    return platform.machine() in {"x86_64", "AMD64", "i686"}


def target() -> frozenset[str]:
    """Return what programs compiled here may rely on: the system, the processor's family and features."""
    return cpu_features() | {f"{sys.platform}-{platform.machine()}"}


_NEEDED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|TMPDIR|TMP|TEMP|LANG|LANGUAGE|LC_\w+|XDG_\w+"
    r"|DISPLAY|WAYLAND_DISPLAY"  # some Vulkan drivers ask for one
    r"|__CF_USER_TEXT_ENCODING"
)
_SWITCHES = re.compile(
    r"(?:GGML|OMP|GOMP|KMP|LIBOMP|MKL|OPENBLAS|GOTO|BLIS|BLAS|VECLIB|ACCELERATE|DNNL|ONEDNN|TBB"  # processor
    r"|CUDA|CUBLAS|CUDNN|NVIDIA|__NV|__GL|NCCL|HIP|HSA|ROCR|ROCM|ROCBLAS|HIPBLASLT|MIOPEN|AMD|AMDGPU|GPU"
    r"|VK|MESA|RADV|ANV|NVK|INTEL|MTL|METAL|ONEAPI|SYCL|ZE|ZES|UR|IGC|NEO|OCL|OPENCL|CL|POCL|MUSA|MTHREADS"
    r"|ASCEND|ACL|HCCL|MALLOC|TCMALLOC|LD|DYLD)_\w+"
    r"|MALLOC_CONF|GLIBC_TUNABLES|DRI_PRIME|NEOReadDebugKeys"
)
_LOG = logging.getLogger("ggufspec")
_SOURCE = Path(__file__).with_name("flush_log.c")
_LOGGER = "libllama-common.so*"
_OF_LLAMA = re.compile(r"lib(?:llama|ggml|mtmd)\b.*")
_LOADED = re.compile(r"=> (/.+) \(0x")  # a line of ldd
_SEPARATORS = re.compile(r"[\s:]")  # of LD_PRELOAD, which knows no quotes


def program_environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which no user setting changes llama.cpp unnoticed.

    Numbers have a decimal point; texts are UTF-8, as in the paths that Python's own start-up files name.

    Args:
        scratch: an empty folder, used as the user's configuration folder.
    """
    return inherited() | {"LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": str(scratch)}


def capture_program(argv: Sequence[str], *, timeout_s: float = 60.0) -> tuple[proc.Completed, str, str]:
    """Run a short program in this environment, in an empty folder; see ``proc.capture``."""
    with temporary.folder() as scratch:
        return proc.capture(argv, env=program_environment(scratch), cwd=scratch, timeout_s=timeout_s)


def loaded_libraries(program: Path) -> frozenset[Path]:
    """Return the libraries of llama.cpp that the dynamic loader finds for a program; none without ldd."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return frozenset()
    _, out, _ = capture_program([ldd, str(program)])
    found = map(Path, _LOADED.findall(out))
    return frozenset(path.resolve() for path in found if is_of_llama(path))


def is_of_llama(file: Path) -> bool:
    """Whether a library is one of llama.cpp's, by its name."""
    return _OF_LLAMA.fullmatch(file.name) is not None


def inherited() -> dict[str, str]:
    """Return the variables that llama.cpp gets from the user."""
    return {name: value for name, value in os.environ.items() if _NEEDED.fullmatch(name)} | switches()


def switches(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that may change how fast llama.cpp is, in alphabetical order."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if _SWITCHES.fullmatch(name) and not is_secret(name, environ[name])
    }


def flush_variables(libraries: Path | None) -> dict[str, str]:
    """Return the variables with which programs write their logs to the end.

    Empty where that is not needed or not possible. A run whose log lacks its end is then repeated.

    Args:
        libraries: the folder of the libraries that the programs load.
    """
    if libraries is None or not any(libraries.glob(_LOGGER)):
        return {}
    library = _library(paths.cache_dir())
    if library is None:
        return {}
    users = os.environ.get("LD_PRELOAD")
    return {"LD_PRELOAD": f"{users}:{library}" if users else str(library)}


@functools.cache
def _library(folder: Path) -> Path | None:
    """Return the library, compiled once for each cache folder; None where it cannot be used."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:8]
    library = folder / f"flush-log-{platform.machine()}-{digest}.so"
    if _SEPARATORS.search(str(library)):
        return None
    if not library.is_file():
        try:
            _compile(library)
        except (OSError, ChildCrashedError) as error:
            _LOG.info("logs may lack their end, and such runs are repeated: %s", error)
            return None
    return library


def _compile(library: Path) -> None:
    """Compile the library, and give it its name in one step.

    Raises:
        OSError: there is no C compiler, or no room.
        ChildCrashedError: the compiler fails.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler (cc) was found")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".flush-log-", dir=library.parent) as name:
        made = Path(name) / library.name
        completed, _, said = proc.capture(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE), "-ldl"]
        )
        if completed.returncode != 0:
            raise ChildCrashedError(f"{compiler} cannot compile {_SOURCE.name}: {said.strip()}")
        made.replace(library)
