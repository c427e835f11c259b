"""The values that all rooms share: frozen, without I/O, with the names of the field."""

from __future__ import annotations

from ggufspec.choices import ENGINES, Chain, Experts, Layers, Method, Program, Role, SplitMode
from ggufspec.domain.estimate import Estimate
from ggufspec.domain.failures import Failure
from ggufspec.domain.judgements import Missing, SpeedJudgement, SpeedVerdict
from ggufspec.domain.machines import Build, FileIdentity, FileUse, Machine, MachineDetails, RpcWorker
from ggufspec.domain.measurements import (
    Answer,
    Conditions,
    Difference,
    MethodCounts,
    Placement,
    RequestOutcome,
    Round,
    RunOutcome,
    RunResult,
    Sample,
    Status,
    TextAudit,
    TextVerdict,
    TrafficSample,
    UserRequest,
)
from ggufspec.domain.models import HeadFile, ModelFile, Pair
from ggufspec.domain.requests import (
    LLAMA_SERVER,
    NO_PROMPT,
    Endpoint,
    Prompt,
    RunningServers,
    ServiceLevel,
    Traffic,
)
from ggufspec.domain.serving import Launch, ServedRequest, Serving
from ggufspec.domain.specs import Drafting, NgramSettings, Offload, RunSpec, Runtime, Sampling
from ggufspec.domain.stopping import StoppingRule, schedule_looks

__all__ = [
    "ENGINES",
    "LLAMA_SERVER",
    "NO_PROMPT",
    "Answer",
    "Build",
    "Chain",
    "Conditions",
    "Difference",
    "Drafting",
    "Endpoint",
    "Estimate",
    "Experts",
    "Failure",
    "FileIdentity",
    "FileUse",
    "HeadFile",
    "Launch",
    "Layers",
    "Machine",
    "MachineDetails",
    "Method",
    "MethodCounts",
    "Missing",
    "ModelFile",
    "NgramSettings",
    "Offload",
    "Pair",
    "Placement",
    "Program",
    "Prompt",
    "RequestOutcome",
    "Role",
    "Round",
    "RpcWorker",
    "RunOutcome",
    "RunResult",
    "RunSpec",
    "RunningServers",
    "Runtime",
    "Sample",
    "Sampling",
    "ServedRequest",
    "ServiceLevel",
    "Serving",
    "SpeedJudgement",
    "SpeedVerdict",
    "SplitMode",
    "Status",
    "StoppingRule",
    "TextAudit",
    "TextVerdict",
    "Traffic",
    "TrafficSample",
    "UserRequest",
    "schedule_looks",
]
