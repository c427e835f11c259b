"""Runs of the embedded pair by real programs."""

from __future__ import annotations

from pathlib import Path

from ggufspec import prompts
from ggufspec.domain import Drafting, Offload, Role, RunSpec, Sample, Status
from ggufspec.engines import Engine
from ggufspec.modelfiles import catalog, hub


def spec(role: Role, offload: Offload) -> RunSpec:
    """Return a short run on one thread; one that drafts has γ = 3."""
    return RunSpec(
        pair=hub.resolve(catalog.find_pair("demo"), offline=True),
        role=role,
        prompt=prompts.suite("demo").prompts[0],
        n_predict=16,
        context=512,
        threads=1,
        offload=offload,
        drafting=Drafting(n_max=3) if role is Role.DRAFTING else None,
    )


def measured(engine: Engine, spec: RunSpec, log: Path) -> Sample:
    """Return a run that ended well; today's programs lose their summary now and then."""
    tries = (engine.measure(spec, log).sample for _ in range(6))
    return next(one for one in tries if one.status is Status.OK)
