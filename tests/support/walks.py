"""Runs over a drafter's trace, and their rounds as they are compared with those of a program."""

from __future__ import annotations

from typing import Any

from ggufspec.domain import Drafting, Round
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace, TracedRun

_OF_RUN = ("n_predict", "program", "build", "samples_exactly")


def traced_run(**asked: Any) -> TracedRun:
    """Return a run over a trace, from its own fields and those of its drafting."""
    of_run = {name: asked.pop(name) for name in _OF_RUN if name in asked}
    return TracedRun(drafting=Drafting(**asked), **of_run)


def rounds_of(text: DraftTrace, **asked: Any) -> tuple[Round, ...]:
    """Return what each round drafts and accepts; see ``trace.steps``."""
    return tuple(Round(step.drafted, int(step.accepted)) for step in trace.steps(text, traced_run(**asked)))
