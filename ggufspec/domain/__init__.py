"""The values that all rooms share: frozen, without I/O, with the names of the field."""

from __future__ import annotations

from ggufspec.choices import ENGINES, Experts, Layers, Method, Program, Role, SplitMode
from ggufspec.domain.estimate import Estimate
from ggufspec.domain.measurements import (
    Build,
    Conditions,
    Difference,
    FileIdentity,
    FileUse,
    Machine,
    MachineDetails,
    Placement,
    Round,
    RunOutcome,
    RunResult,
    Sample,
    Status,
    TextAudit,
    TextVerdict,
)
from ggufspec.domain.serving import Launch, ServedRequest, Serving
from ggufspec.domain.specs import (
    NO_PROMPT,
    Drafting,
    ModelFile,
    Offload,
    Pair,
    Prompt,
    RunSpec,
    Runtime,
    Sampling,
)

__all__ = [
    "ENGINES",
    "NO_PROMPT",
    "Build",
    "Conditions",
    "Difference",
    "Drafting",
    "Estimate",
    "Experts",
    "FileIdentity",
    "FileUse",
    "Launch",
    "Layers",
    "Machine",
    "MachineDetails",
    "Method",
    "ModelFile",
    "Offload",
    "Pair",
    "Placement",
    "Program",
    "Prompt",
    "Role",
    "Round",
    "RunOutcome",
    "RunResult",
    "RunSpec",
    "Runtime",
    "Sample",
    "Sampling",
    "ServedRequest",
    "Serving",
    "SplitMode",
    "Status",
    "TextAudit",
    "TextVerdict",
]
