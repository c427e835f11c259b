"""Runs of the embedded pair by real programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ggufspec import prompts
from ggufspec.domain import Drafting, ModelFile, Offload, Prompt, Role, RunSpec, Sample, Status
from ggufspec.engines import Engine, InprocessEngine, Measurement
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub

PROMPTS = {prompt.id: prompt for prompt in prompts.suite("demo").prompts}
PACKING = Prompt(id="packing", text="Packing list for Anna, who goes to the sea:\n- ")
LONG = Prompt(id="long", text="the river and the village " * 300)
"""More than a context of 512 tokens holds."""


def spec(role: Role = Role.TARGET, offload: Offload | None = None, **changes: Any) -> RunSpec:
    """Return a short run on one thread, by default on the processor; ``changes`` are to its other fields.

    One that drafts has γ = 3.
    """
    made = RunSpec(
        pair=hub.resolve(catalog.find_pair("demo"), offline=True),
        role=role,
        prompt=next(iter(PROMPTS.values())),
        n_predict=16,
        context=512,
        threads=1,
        offload=Offload().on_processor if offload is None else offload,
        drafting=Drafting(n_max=3) if role is Role.DRAFTING else None,
    )
    return replace(made, **changes)


def with_models(spec: RunSpec, *, target: Path | None = None, draft: Path | None = None) -> RunSpec:
    """Return the run with other files in place of its models."""
    named = {"target": target, "draft": draft}
    files: dict[str, Any] = {
        name: ModelFile(filename=path.name, path=path) for name, path in named.items() if path
    }
    return replace(spec, pair=replace(spec.pair, **files))


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
