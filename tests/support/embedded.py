"""Runs of the embedded pair by real programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ggufspec import prompts
from ggufspec.domain import Drafting, Offload, Role, RunSpec, Sample, Status
from ggufspec.engines import Engine, InprocessEngine, Measurement
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install.installs import Install
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


class SureText(NamedTuple):
    """What a target writes up to its first near-tie, and whether that is all of its text."""

    text: str
    is_whole: bool

    def is_in(self, text: str | None) -> bool:
        """Whether a text, which may end earlier or later, is the same as far as it is sure."""
        together = min(len(text or ""), len(self.text))
        return bool(together) and (text or "")[:together] == self.text[:together]


def sure_text(llama: Install, spec: RunSpec) -> SureText:
    """Return what the target of a run writes whatever the order of additions is."""
    with InprocessEngine(install=llama, timeout_s=120) as library:
        (texts,) = profiles.traces(library, spec, [spec.prompt], [])
        changes_at = trace.first_text_tie(texts.target_trace)
        if changes_at >= len(texts.target_trace.tokens):
            return SureText(texts.text, is_whole=True)
        short = library.trace(replace(spec, n_predict=int(changes_at)), []).written
        return SureText(short.text, is_whole=False)
