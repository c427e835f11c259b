"""The values that travel through ggufspec: frozen, free of I/O, named as the field names them."""

from __future__ import annotations

from ggufspec.domain.asked import (
    Drafting,
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
)
from ggufspec.domain.measured import (
    Build,
    Conditions,
    Difference,
    Machine,
    Outcome,
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
    "Layers",
    "Machine",
    "Method",
    "ModelFile",
    "Offload",
    "Outcome",
    "Pair",
    "Program",
    "Prompt",
    "Role",
    "Round",
    "RunResult",
    "RunSpec",
    "Sample",
    "Sampling",
    "Status",
    "Verdict",
]
