"""The expected time of a sweep: from runs that are stored, else from the size of the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from time import perf_counter

import numpy as np

from ggufspec import engines, results
from ggufspec.domain import ModelFile, Prompt, Role, RunSpec, Status
from ggufspec.errors import GgufspecError
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Blocks
from ggufspec.results import Runs

_LOOK_BACK = 10  # stored benches
_PROBE_BYTES = 64 << 20  # more than most caches hold
_FEW = 3  # values of an axis that stand for all
_START_S = 0.5  # of a process that starts, maps its model and ends


@dataclass(frozen=True, kw_only=True)
class Experience:
    """Seconds of earlier runs and loads.

    Attributes:
        same: of runs of the same specification, by its key, without loading.
        alike: per token of runs with the same models and settings, without loading.
        loads: of loading the same models.
        bytes_per_s: how fast weights are read.
    """

    same: dict[str, list[float]] = field(default_factory=dict)
    alike: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    loads: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    bytes_per_s: float

    def expect(self, spec: RunSpec) -> float:
        """Return the seconds that a run may take once its models are loaded."""
        if (per_token := self.alike.get(_settings(spec))) is not None:
            if (seconds := self.same.get(spec.key)) is not None:
                return median(seconds)
            return median(per_token) * _n_tokens(spec)
        return weights(spec) / self.bytes_per_s * _n_tokens(spec)  # each token reads all weights once

    def expect_load(self, spec: RunSpec) -> float:
        """Return the seconds that loading the models of a run may take."""
        if (seconds := self.loads.get(_settings(spec))) is not None:
            return median(seconds)
        return _START_S + weights(spec) / self.bytes_per_s

    def expect_each(self, arm: RunSpec, prompts: Sequence[Prompt]) -> list[float]:
        """Return the seconds of an arm on each prompt."""
        if _settings(arm) not in self.alike:  # then prompts make no difference
            return [self.expect(arm)] * len(prompts)
        return [self.expect(replace(arm, prompt=prompt)) for prompt in prompts]


def experience() -> Experience:
    """Read the newest stored benches, and measure how fast memory can be read."""
    known = Experience(bytes_per_s=_read_speed())
    for name in results.ids()[-_LOOK_BACK:]:
        try:
            runs = results.load(name).runs
        except GgufspecError:
            continue  # a damaged bench says nothing here; `show` says what is wrong with it
        _learn(known, runs)
    return known


def expect(suite: RunPlan, known: Experience) -> dict[RunSpec, float]:
    """Return the seconds for each arm of a suite: all its prompts and repeats, warm-ups and loads."""
    n_warmups = suite.n_warmups // suite.n_arms.total()  # of each arm
    n_runs = len(suite.prompts) * suite.repeats + n_warmups
    n_loads = n_runs if suite.loads is None else suite.loads
    seconds: dict[RunSpec, float] = {}
    for block in suite.blocks:
        for arm in block.arms:
            by_prompt = known.expect_each(arm, suite.prompts)
            running_s = sum(by_prompt) * suite.repeats + by_prompt[0] * n_warmups
            seconds[arm] = running_s + known.expect_load(arm) * n_loads
    return seconds


def few_blocks(suite: RunPlan) -> Blocks:
    """Return blocks that stand for all of a sweep."""
    assert isinstance(suite.blocks, Blocks)
    return suite.blocks.sweep.thinned(_FEW).blocks()


def total(suite: RunPlan, known: Experience) -> float:
    """Return the seconds for a sweep of any size: what a few arms of each role take, times their number."""
    few = expect(replace(suite, blocks=few_blocks(suite)), known)
    by_role: dict[Role, list[float]] = {}
    for arm, seconds in few.items():
        by_role.setdefault(arm.role, []).append(seconds)
    return sum(fmean(seconds) * suite.n_arms[role] for role, seconds in by_role.items())


def _learn(known: Experience, runs: Runs) -> None:
    names = ("status", "engine", "wall_s", "program_s", "load_ms")
    columns = zip(runs.specs, *map(runs.column, names), strict=True)
    for spec, status, engine, wall_s, program_s, load_ms in columns:
        if status is not Status.OK:
            continue
        load_s = None if load_ms is None else load_ms / 1000
        if engines.keeps_loads(engine):  # the first run of a load says that it loaded
            load_s = None if load_ms is None else wall_s - program_s
        elif load_s is None:
            load_s = 0.0  # a part of the run's own time
        if load_s is not None:
            known.loads.setdefault(_settings(spec), []).append(load_s)
        run_s = wall_s - (load_s or 0.0)
        known.same.setdefault(spec.key, []).append(run_s)
        known.alike.setdefault(_settings(spec), []).append(run_s / _n_tokens(spec))


def _settings(spec: RunSpec) -> tuple[object, ...]:
    drafter = spec.drafter and spec.drafter.filename
    traffic = spec.traffic and (spec.traffic.users, spec.traffic.depth)
    return (spec.model.filename, drafter, spec.drafting, spec.offload, spec.threads, traffic)


def _n_tokens(spec: RunSpec) -> int:
    """Return how many tokens a run generates at most; those of several users as if one after the other."""
    return spec.n_predict * (1 if spec.traffic is None else spec.traffic.n_requests)


def weights(spec: RunSpec) -> int:
    """Return the size of a run's models in bytes."""
    return sum(_size(model) for model in (spec.model, spec.drafter) if model)


def _size(model: ModelFile) -> int:
    return model.path.stat().st_size if model.path else model.size_bytes or 0


def _read_speed() -> float:
    """Return bytes per second of reading memory once, single-threaded: rather too few than too many."""
    block = np.ones(_PROBE_BYTES // 8)
    started = perf_counter()
    block.sum()
    return _PROBE_BYTES / (perf_counter() - started)
