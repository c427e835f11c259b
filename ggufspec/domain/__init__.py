"""The values that all rooms share: frozen, without I/O, with the names of the field."""

from __future__ import annotations

from ggufspec.choices import (
    ENGINES,
    OWN_PROCESSES,
    DraftSampling,
    Experts,
    Layers,
    Method,
    Program,
    Role,
    SplitMode,
)
from ggufspec.domain.acceptances import Acceptance, AcceptanceRate, Positions, Steady, parse_acceptances
from ggufspec.domain.judgements import (
    Estimate,
    Missing,
    SpeedJudgement,
    SpeedVerdict,
    StoppingRule,
    schedule_looks,
)
from ggufspec.domain.machines import Build, FileIdentity, FileUse, Machine, MachineDetails, RpcWorker
from ggufspec.domain.measurements import (
    Conditions,
    Difference,
    Failure,
    LoadedModel,
    MethodCounts,
    Placement,
    PromptAnswer,
    RequestOutcome,
    Round,
    RunOutcome,
    RunProblem,
    RunResult,
    Sample,
    Segment,
    SegmentCounts,
    Status,
    TextAudit,
    TextVerdict,
    TrafficSample,
    UserRequest,
)
from ggufspec.domain.requests import (
    CONSTRAINTS,
    IMAGE,
    LLAMA_SERVER,
    NO_PROMPT,
    SHOWN_IMAGE,
    Asking,
    Endpoint,
    Launch,
    Prompt,
    Request,
    RunningServers,
    ServedRequest,
    ServiceLevel,
    Serving,
    Traffic,
    message_text,
)
from ggufspec.domain.specs import (
    CacheTypes,
    Chain,
    Drafting,
    HeadFile,
    ModelFile,
    ModelName,
    ModelRun,
    NgramSettings,
    Offload,
    Pair,
    RunSpec,
    Runtime,
    Sampling,
)
