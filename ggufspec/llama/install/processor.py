"""What this processor can do, in the words of llama.cpp's build options."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from ggufspec import paths

_FEATURES = {
    "sse4_2": "SSE42",
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_tile": "AMX_TILE",
    "amx_int8": "AMX_INT8",
    "amx_bf16": "AMX_BF16",
    "asimddp": "DOTPROD",
    "i8mm": "I8MM",
    "sve": "SVE",
}
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
