"""The ends of failed builds' logs, and what they mean."""

from __future__ import annotations

import pytest

from ggufspec.llama.build.compilation import FALLBACK, diagnose


@pytest.mark.parametrize(
    ("log", "advice"),
    [
        ("fatal error: error writing to /tmp/ccAB.s: No space left on device", "GGUFSPEC_CACHE"),
        ("c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", "--jobs"),
        ("cc1plus: out of memory allocating 65536 bytes", "--jobs"),
        ("CMake Error: CMAKE_CXX_COMPILER not set\nNo CMAKE_CXX_COMPILER could be found.", "C++ compiler"),
        ("make: g++: command not found\nmake: *** [Makefile:700: unicode.o] Error 127", "C++ compiler"),
        ("/bin/sh: 1: g++: not found", "C++ compiler"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_52'", "CUDAARCHS"),
        ("#error -- unsupported GNU version! gcc versions later than 12 are not supported!", "CUDAHOSTCXX"),
        ("No CMAKE_CUDA_COMPILER could be found.", "nvcc"),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "driver"),
        ("Could NOT find CURL (missing: CURL_LIBRARY CURL_INCLUDE_DIR)", "libcurl"),
        ("Could NOT find Vulkan (missing: Vulkan_LIBRARY glslc)", "Vulkan SDK"),
        ('Could not find a package configuration file provided by "hip" with', "ROCm"),
        ('xcrun: error: unable to find utility "metal", not a developer tool', "xcode-select"),
        ("something that nobody has seen before", FALLBACK),
    ],
)
def test_a_failure_has_a_hint(log: str, advice: str) -> None:
    assert advice in diagnose(f"[3/9] Building CXX object\n{log}\nninja: build stopped: subcommand failed.")
