"""Benches in memory, from arrays of speeds, with the records that a store would have of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
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
from ggufspec.results.records import CallRecord, ConditionsRecord, Ledger, OutputRecord, RunRecord, SpecRecord

BUILD = Build(version="0.3.36", commit="0c1e570", backend="cpu", path="/opt/llama.cpp")
BUILDS = {"old": BUILD, "new": replace(BUILD, version="0.3.37")}
MACHINE = Machine(hostname="box", system="Linux", cpu="A Processor", cores=2, memory_bytes=24 << 30)
TOKENS = 100  # decoded in each run, after the first one

_PAIR = Pair(
    name="tiny",
    target=ModelFile(filename="target.gguf", content="a" * 64),
    draft=ModelFile(filename="drafter.gguf", content="b" * 64),
)
_STARTED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

Place = tuple[int, int]
"""The row and the column of a run: its prompt and its repeat."""

Table = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SimulatedArm:
    """An arm of a bench: what it measures, and what its runs gave, in tables of (prompts, repeats).

    Attributes:
        spec: without a prompt.
        tps: tokens/s of each run; NaN where there is no run.
        loads: the number of the load that made each run, unique in the bench; None where each run has one of
            its own.
        statuses: how runs ended that did not end well.
        conditions: of runs that were disturbed, or whose energy was measured.
        doubts: the names of warnings about runs.
        samples: what else is known of runs, by names of ``Sample``.
        prompts: their ids, in alphabetical order; by default p000, p001, …
        categories: of each prompt; none by default.
        order: when each run was made, any numbers; by default repeat by repeat.
        started_s: when each run began, in seconds; all at once by default.
        is_anchor: whether the runs are anchors, which measure one configuration again and again.
    """

    spec: RunSpec
    tps: Table
    loads: NDArray[np.int64] | None = None
    statuses: Mapping[Place, Status] | None = None
    conditions: Mapping[Place, Conditions] | None = None
    doubts: Mapping[Place, tuple[str, ...]] | None = None
    samples: Mapping[Place, Mapping[str, Any]] | None = None
    prompts: Sequence[str] | None = None
    categories: Sequence[str] | None = None
    order: Table | None = None
    started_s: Table | None = None
    is_anchor: bool = False

    def up_to(self, repeats: int) -> SimulatedArm:
        """Return what there was after so many repeats."""
        loads = None if self.loads is None else self.loads[:, :repeats]
        return replace(self, tps=self.tps[:, :repeats], loads=loads)


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
        ids = tuple(arm.prompts or (f"p{p:03}" for p in range(len(arm.tps))))
        # starts of one server are equal, but not the same
        make = _on_prompts if arm.spec.servers is None else _on_prompts.__wrapped__
        specs = make(arm.spec, ids, tuple(arm.categories or ()))
        first = len(ledger.specs)
        ledger.add([SpecRecord(id=first + p, spec=spec, key=spec.key) for p, spec in enumerate(specs)])
        runs += _records(ledger, arm, number, first)
    ledger.add([record for _, record in sorted(runs, key=lambda pair: pair[0])])
    meta = {
        "id": name,
        "started_at": _STARTED_AT.isoformat(),
        "engine": engine,
        "command": ("ggufspec", "bench"),
        "build": BUILD,
        "machine": MACHINE,
        **facts,
    }
    return ResultSet(meta=Meta(**meta), folder=Path(name), runs=Runs(ledger))


@lru_cache(maxsize=1024)
def _on_prompts(spec: RunSpec, ids: tuple[str, ...], categories: tuple[str, ...]) -> tuple[RunSpec, ...]:
    """Return the runs of an arm; all benches have the same objects, whose keys take longest to compute."""
    prompts = [
        Prompt(id=name, text=f"Text of {name}", category=categories[number] if categories else None)
        for number, name in enumerate(ids)
    ]
    return tuple(replace(spec, prompt=prompt) for prompt in prompts)


def _records(ledger: Ledger, arm: SimulatedArm, number: int, first: int) -> Iterator[tuple[float, Any]]:
    """Yield the runs of an arm, each after the time at which it was made; add their outputs.

    Args:
        ledger: gets the outputs.
        arm: with its specifications in the ledger.
        number: of the arm.
        first: number of its first specification.
    """
    outputs: dict[Status, int] = {}
    statuses, states, doubts, samples = (
        arm.statuses or {},
        arm.conditions or {},
        arm.doubts or {},
        arm.samples or {},
    )
    drafts = arm.spec.role is Role.DRAFTING
    started_at = _STARTED_AT.isoformat()
    for p, r in np.argwhere(~np.isnan(arm.tps)).tolist():
        status, sample = statuses.get((p, r), Status.OK), samples.get((p, r))
        output = len(ledger.outputs) if sample else outputs.setdefault(status, len(ledger.outputs))
        if output == len(ledger.outputs):
            ledger.outputs.append(_output(output, arm.spec, status, sample or {}))
        state, seconds = states.get((p, r)), TOKENS / float(arm.tps[p, r])
        if arm.started_s is not None:
            started_at = (_STARTED_AT + timedelta(seconds=float(arm.started_s[p, r]))).isoformat()
        yield (
            r if arm.order is None else float(arm.order[p, r]),
            RunRecord(
                spec=first + p,
                call=0,
                output=output,
                repeat=r,
                log=f"{number}-{p}-{r}",
                started_at=started_at,
                wall_s=seconds,
                program_s=seconds,
                gen_s=seconds if status is Status.OK else None,
                load=None if arm.loads is None else int(arm.loads[p, r]),
                conditions=state and ConditionsRecord(**vars(state)),
                doubts=doubts.get((p, r), ()),
                anchor=arm.is_anchor,
                text_identical=True if drafts and status is Status.OK else None,
            ),
        )


def _output(number: int, spec: RunSpec, status: Status, sample: Mapping[str, Any]) -> Any:
    """Return what a run gave beside its times, or what all runs of an arm that ended alike have in common."""
    if status is not Status.OK:
        return OutputRecord(id=number, status=status)
    drafts = spec.role is Role.DRAFTING
    requests = (UserRequest(prompt=0, outcome=RequestOutcome.OK, is_steady=True, tokens=TOKENS),)
    usual = {
        "program": Program.SERVER,
        "gen_tokens": TOKENS + 1,  # the server counts the first token, which the prompt's evaluation gives
        "n_drafted": TOKENS if drafts else None,
        "n_accepted": TOKENS * 3 // 4 if drafts else None,
        "n_rounds": TOKENS // 4 if drafts else None,  # its accepted tokens, and one of the target
        "target": LoadedModel(offloaded_layers=0, total_layers=7),
        "traffic": None if spec.traffic is None else TrafficSample(requests=requests, window_tokens=TOKENS),
    }
    return OutputRecord(id=number, status=status, **{**usual, **sample})
