"""The values that travel through ggufspec: frozen, free of I/O, named as the field names them."""

from __future__ import annotations

from ggufspec.domain.asked import (
    Drafting,
    Experts,
    Layers,
    Method,
    ModelFile,
    Offload,
    Pair,
    Program,
    Prompt,
    Role,
    RunSpec,
    Sampling,
    SplitMode,
)
from ggufspec.domain.measured import (
    Build,
    Conditions,
    Difference,
    Machine,
    Outcome,
    Placement,
    Round,
    RunResult,
    Sample,
    Status,
    Verdict,
)

__all__ = [
    "Build",
    "Conditions",
    "Difference",
    "Drafting",
    "Experts",
    "Layers",
    "Machine",
    "Method",
    "ModelFile",
    "Offload",
    "Outcome",
    "Pair",
    "Placement",
    "Program",
    "Prompt",
    "Role",
    "Round",
    "RunResult",
    "RunSpec",
    "Sample",
    "Sampling",
    "SplitMode",
    "Status",
    "Verdict",
]
