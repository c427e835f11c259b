"""How much memory will a pair take, and how many layers fit on the GPU? From the headers alone.

Several GPUs count as one unless a tensor split is given: what does not fit on them together does not fit. The
CUDA context itself (some hundred MiB) and other programs are left to the reserve, for which llama.cpp's own
--fit also keeps 1 GiB.
"""

from __future__ import annotations

from ggufspec.modelfiles.memory.placement import (
    Distribution,
    Footprint,
    ModelMemory,
    distribute,
    expert_layer,
)
from ggufspec.modelfiles.memory.settings import (
    DEFAULT_UBATCH,
    F16,
    TODAY,
    Layout,
    MemorySettings,
    cache_bytes,
    doubts,
    layout_for,
    settings_for,
)
from ggufspec.modelfiles.memory.verdicts import (
    RESERVE_BYTES,
    MemoryFit,
    MemoryPlan,
    MemoryVerdict,
    best_fit,
    fits,
    plan,
    plan_each_offload,
    verdict,
)
