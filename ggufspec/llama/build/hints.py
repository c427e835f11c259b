"""What the end of a failed build's log means, and what to do about it."""

from __future__ import annotations

import re

_HINTS: tuple[tuple[str, str], ...] = (
    (r"No space left on device|[Dd]isk quota exceeded", "free some disk space, or set GGUFSPEC_CACHE"),
    (
        r"Killed signal terminated|fatal error: Killed|virtual memory exhausted|[Oo]ut of memory",
        "the compiler ran out of memory: build with fewer --jobs",
    ),
    (
        r"No CMAKE_CX*_COMPILER could be found|(?:cc|c\+\+|g\+\+|gcc): (?:command )?not found",
        "install a C++ compiler: apt install g++, dnf install gcc-c++ or xcode-select --install",
    ),
    (
        r"[Uu]nsupported gpu architecture",
        "this CUDA toolkit does not know that GPU: name another with --cuda-arch (or CUDAARCHS)",
    ),
    (
        r"unsupported GNU version|host_config\.h.*#error",
        "this CUDA toolkit wants an older host compiler: apt install g++-12, then CUDAHOSTCXX=g++-12",
    ),
    (
        r"No CMAKE_CUDA_COMPILER could be found|CUDA Toolkit not found|nvcc: (?:command )?not found",
        "put nvcc on PATH, or pip install 'ggufspec[cuda-build]'; --backend cpu does without",
    ),
    (
        r"cannot find -lcuda\b|libcuda\.so",
        "NVIDIA's driver library is missing: install the driver, or build a llama.cpp that does without",
    ),
    (
        r"Could NOT find CURL|curl/curl\.h",
        "install libcurl's development files: apt install libcurl4-openssl-dev",
    ),
    (
        r"glslc|Could NOT find Vulkan|vulkan/vulkan\.hpp",
        "install the Vulkan SDK with glslc: apt install libvulkan-dev glslc",
    ),
    (
        r"hip-lang|provided by \"hip|No CMAKE_HIP_COMPILER",
        "install ROCm; --backend cpu does without",
    ),
    (
        r"xcrun: error|unable to find utility \"metal\"",
        "install Xcode's command-line tools: xcode-select --install",
    ),
)
"""Pattern -> what to do, the surest first: one failure often drags others behind it."""

FALLBACK = "read the log; another --version or --backend may build"


def diagnose(log: str) -> str:
    """Return the hint that fits the log of a failed build."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, log)), FALLBACK)
