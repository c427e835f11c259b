"""Benches in memory, from arrays of speeds, with the records that a store would have of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import (
    NO_PROMPT,
    Build,
    Conditions,
    Drafting,
    Endpoint,
    LoadedModel,
    Machine,
    ModelFile,
    Pair,
    Program,
    Prompt,
    RequestOutcome,
    Role,
    RunningServers,
    RunSpec,
    Status,
    Traffic,
    TrafficSample,
    UserRequest,
)
from ggufspec.results import Meta, ResultSet, Runs
from ggufspec.results.ledger import Ledger
from ggufspec.results.records import CallRecord, ConditionsRecord, OutputRecord, RunRecord, SpecRecord

BUILD = Build(version="0.3.36", commit="0c1e570", backend="cpu", path="/opt/llama.cpp")
MACHINE = Machine(hostname="box", system="Linux", cpu="A Processor", cores=2, memory_bytes=24 << 30)
TOKENS = 100  # decoded in each run, after the first one

_PAIR = Pair(
    name="tiny",
    target=ModelFile(filename="target.gguf", content="a" * 64),
    draft=ModelFile(filename="drafter.gguf", content="b" * 64),
)
_STARTED_AT = "2026-01-02T03:04:05.678+00:00"

Table = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SimulatedArm:
    """An arm of a bench: what it measures, and what its runs gave, in tables of (prompts, repeats).

    Attributes:
        spec: without a prompt.
        tps: tokens/s of each run; NaN where there is no run.
        loads: the number of the load that made each run, unique in the bench; None where each run has one of
            its own.
        statuses: how runs ended that did not end well, by (prompt, repeat).
        conditions: of runs that were disturbed, by (prompt, repeat).
        doubts: the names of warnings about runs, by (prompt, repeat).
        prompts: their ids, in alphabetical order; by default p000, p001, …
        order: when each run was made, any numbers; by default repeat by repeat.
    """

    spec: RunSpec
    tps: Table
    loads: NDArray[np.int64] | None = None
    statuses: dict[tuple[int, int], Status] | None = None
    conditions: dict[tuple[int, int], Conditions] | None = None
    doubts: dict[tuple[int, int], tuple[str, ...]] | None = None
    prompts: Sequence[str] | None = None
    order: Table | None = None


def target_alone() -> RunSpec:
    """Return what a run of the target alone measures."""
    return RunSpec(
        pair=replace(_PAIR, draft=None),
        role=Role.TARGET,
        prompt=NO_PROMPT,
        n_predict=TOKENS,
        context=512,
        threads=2,
    )


def drafting(n_max: int = 3) -> RunSpec:
    """Return what a run that drafts measures."""
    return replace(target_alone(), pair=_PAIR, role=Role.DRAFTING, drafting=Drafting(n_max=n_max))


def running_servers(*, alone: str, drafting: str, users: int = 1) -> tuple[RunSpec, RunSpec]:
    """Return the runs of a server of the target alone and of one that drafts, by their addresses."""
    servers = RunningServers(
        alone=Endpoint(url=alone, model="tiny"), drafting=Endpoint(url=drafting, model="tiny", drafts=True)
    )
    spec = replace(
        target_alone(),
        role=Role.DRAFTING,
        pair=Pair(name="tiny", target=ModelFile(filename="tiny")),
        traffic=Traffic(users=users, prompts=(Prompt(id="p000", text="A text"),), n_requests=users),
        servers=servers,
    )
    return spec.baseline, spec


def bench(
    arms: Sequence[SimulatedArm],
    *,
    engine: str = "server",
    name: str = "bench",
    **facts: Any,
) -> ResultSet:
    """Return a stored bench of some arms, whose runs are in the order in which they were made.

    Args:
        arms: all of the same prompts and repeats.
        engine: that measured it.
        name: its id.
        facts: other fields of ``Meta``.
    """
    ledger = Ledger(calls=[CallRecord(id=0, engine=engine, argv=("llama",))])
    runs: list[tuple[float, Any]] = []
    for number, arm in enumerate(arms):
        ids = arm.prompts or [f"p{p:03}" for p in range(len(arm.tps))]
        specs = [replace(arm.spec, prompt=Prompt(id=name, text=f"Text of {name}")) for name in ids]
        first = len(ledger.specs)
        ledger.add([SpecRecord(id=first + p, spec=spec, key=spec.key) for p, spec in enumerate(specs)])
        outputs: dict[Status, int] = {}
        for p, r in np.argwhere(~np.isnan(arm.tps)).tolist():
            status = (arm.statuses or {}).get((p, r), Status.OK)
            if status not in outputs:
                outputs[status] = len(ledger.outputs)
                ledger.add([_output(outputs[status], arm.spec, status)])
            state = (arm.conditions or {}).get((p, r))
            record = RunRecord(
                spec=first + p,
                call=0,
                output=outputs[status],
                repeat=r,
                log=f"{number}-{p}-{r}",
                started_at=_STARTED_AT,
                wall_s=TOKENS / float(arm.tps[p, r]),
                program_s=TOKENS / float(arm.tps[p, r]),
                gen_s=TOKENS / float(arm.tps[p, r]) if status is Status.OK else None,
                load=None if arm.loads is None else int(arm.loads[p, r]),
                conditions=state and ConditionsRecord(**vars(state)),
                doubts=(arm.doubts or {}).get((p, r), ()),
                text_identical=True if arm.spec.role is Role.DRAFTING and status is Status.OK else None,
            )
            runs.append((r if arm.order is None else float(arm.order[p, r]), record))
    ledger.add([record for _, record in sorted(runs, key=lambda pair: pair[0])])
    meta = {
        "id": name,
        "started_at": _STARTED_AT,
        "engine": engine,
        "command": ("ggufspec", "bench"),
        "build": BUILD,
        "machine": MACHINE,
        **facts,
    }
    return ResultSet(meta=Meta(**meta), folder=Path(name), runs=Runs(ledger))


def _output(number: int, spec: RunSpec, status: Status) -> Any:
    """Return what all runs of an arm that ended alike have in common."""
    if status is not Status.OK:
        return OutputRecord(id=number, status=status)
    drafts = spec.role is Role.DRAFTING
    requests = (UserRequest(prompt=0, outcome=RequestOutcome.OK, is_steady=True, tokens=TOKENS),)
    return OutputRecord(
        id=number,
        status=status,
        program=Program.SERVER,
        gen_tokens=TOKENS + 1,  # the server counts the first token, which the prompt's evaluation gives
        n_drafted=TOKENS if drafts else None,
        n_accepted=TOKENS * 3 // 4 if drafts else None,
        n_rounds=TOKENS // 4 if drafts else None,  # a round gives its accepted tokens and one of the target
        target=LoadedModel(offloaded_layers=0, total_layers=7),
        traffic=None if spec.traffic is None else TrafficSample(requests=requests, window_tokens=TOKENS),
    )
