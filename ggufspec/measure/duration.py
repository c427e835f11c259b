"""How long will a sweep take? From runs that are stored, else from the size of the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from time import perf_counter

import numpy as np

from ggufspec import results
from ggufspec.domain import ModelFile, Prompt, Role, RunSpec, Status
from ggufspec.errors import GgufspecError
from ggufspec.measure.sweep import Blocks, RunPlan
from ggufspec.results import Runs

_LOOK_BACK = 10  # stored benches
_PROBE_BYTES = 64 << 20  # more than most caches hold
_FEW = 3  # values of an axis that stand for all
_LOAD_S = 0.5  # of a process that starts, maps its model and ends


@dataclass(frozen=True, kw_only=True)
class Experience:
    """Seconds of earlier runs: of the same specification, and per token of the same models and role."""

    same: dict[str, list[float]] = field(default_factory=dict)
    alike: dict[tuple[object, ...], list[float]] = field(default_factory=dict)
    bytes_per_s: float

    def expect(self, spec: RunSpec) -> float:
        """Return the seconds that a run may take, its loading included."""
        if (per_token := self.alike.get(_kind(spec))) is not None:
            if (seconds := self.same.get(spec.key)) is not None:
                return median(seconds)
            return median(per_token) * spec.n_predict
        size = sum(_size(model) for model in (spec.model, spec.drafter) if model)
        return _LOAD_S + size / self.bytes_per_s * (1 + spec.n_predict)  # each token reads all weights once

    def expect_each(self, arm: RunSpec, prompts: Sequence[Prompt]) -> list[float]:
        """Return the seconds of an arm on each prompt."""
        if _kind(arm) not in self.alike:  # then prompts make no difference
            return [self.expect(arm)] * len(prompts)
        return [self.expect(replace(arm, prompt=prompt)) for prompt in prompts]


def experience() -> Experience:
    """Read the newest stored benches, and measure how fast memory can be read."""
    found = Experience(bytes_per_s=_read_speed())
    for name in results.ids()[-_LOOK_BACK:]:
        try:
            runs = results.load(name).runs
        except GgufspecError:
            continue  # a damaged bench says nothing here; `show` says what is wrong with it
        _learn(found, runs)
    return found


def expect(suite: RunPlan, known: Experience) -> dict[RunSpec, float]:
    """Return the seconds for each arm of a suite: all its prompts and repeats, and its warm-ups."""
    seconds: dict[RunSpec, float] = {}
    for block in suite.blocks:
        for arm in block.arms:
            each = known.expect_each(arm, suite.prompts)
            warm = each[0] * suite.warmups
            seconds[arm] = sum(each) * suite.repeats + warm * max(1, len(suite.warmup_prompts))
    return seconds


def total(suite: RunPlan, known: Experience) -> float:
    """Return the seconds for a sweep of any size: what a few arms of each role take, times their number."""
    assert isinstance(suite.blocks, Blocks)
    few = expect(replace(suite, blocks=suite.blocks.sweep.thinned(_FEW).blocks()), known)
    by_role: dict[Role, list[float]] = {}
    for arm, seconds in few.items():
        by_role.setdefault(arm.role, []).append(seconds)
    return sum(fmean(seconds) * suite.n_arms[role] for role, seconds in by_role.items())


def _learn(known: Experience, runs: Runs) -> None:
    columns = (runs.specs, runs.column("status"), runs.column("wall_s"))
    for spec, status, wall_s in zip(*columns, strict=True):
        if status is Status.OK:
            known.same.setdefault(spec.key, []).append(wall_s)
            known.alike.setdefault(_kind(spec), []).append(wall_s / spec.n_predict)


def _kind(spec: RunSpec) -> tuple[object, ...]:
    drafter = spec.drafter and spec.drafter.filename
    return (spec.model.filename, drafter, spec.drafting, spec.offload, spec.threads)


def _size(model: ModelFile) -> int:
    return model.path.stat().st_size if model.path else model.size_bytes or 0


def _read_speed() -> float:
    """Return bytes per second of reading memory once, single-threaded: rather too few than too many."""
    block = np.ones(_PROBE_BYTES // 8)
    started = perf_counter()
    block.sum()
    return _PROBE_BYTES / (perf_counter() - started)
