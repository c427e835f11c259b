"""Runs of the embedded pair by real programs."""

from __future__ import annotations

from pathlib import Path

from ggufspec import prompts
from ggufspec.domain import Drafting, Offload, Role, RunSpec, Sample, Status
from ggufspec.engines import Engine, Measurement
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


def complete(engine: Engine, spec: RunSpec, log: Path) -> Measurement:
    """Return a run, good or bad, whose log kept its end; today's programs lose it now and then.

    Without it neither a summary nor the reason of a failure is known.
    """
    tries = (engine.measure(spec, log) for _ in range(6))
    return next(one for one in tries if one.sample.status not in {Status.SUMMARY_LOST, Status.FAILED})


def measured(engine: Engine, spec: RunSpec, log: Path) -> Sample:
    """Return a run that ended well."""
    run = complete(engine, spec, log)
    assert run.sample.status is Status.OK, run.error
    return run.sample
