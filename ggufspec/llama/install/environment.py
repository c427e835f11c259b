"""Which of the user's environment variables llama.cpp gets: those that programs need, and tuning switches.

It gets no others: none of its own settings (``LLAMA_…``), so that only the command line decides what is
measured, and no secrets. Variables that may change a speed are stored with each bench.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ggufspec.redaction import is_secret

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


def program_environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which no user setting changes llama.cpp unnoticed.

    Numbers have a decimal point; texts are UTF-8, as in the paths that Python's own start-up files name.

    Args:
        scratch: an empty folder, used as the user's configuration folder.
    """
    return inherited() | {"LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": str(scratch)}


def inherited(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that llama.cpp gets from the user."""
    needed = {name: value for name, value in environ.items() if _NEEDED.fullmatch(name)}
    return needed | switches(environ)


def switches(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that may change how fast llama.cpp is, in alphabetical order."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if _SWITCHES.fullmatch(name) and not is_secret(name, environ[name])
    }
