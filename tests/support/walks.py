"""Runs over a drafter's trace, and their rounds as they are compared with those of a program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ggufspec.domain import Drafting, Round
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace, TracedRun

RECORDED = Path(__file__).parents[1] / "traces"
_OF_RUN = ("n_predict", "program", "build", "samples_exactly")


def trace_of(
    match: str | Sequence[bool],
    prompt_id: str = "p",
    category: str | None = None,
    *,
    confidence: float | Sequence[float] = 1.0,
    **more: Any,
) -> DraftTrace:
    """Return the trace of a text of which the drafter has the tokens right that have a bit, 1 or True."""
    bits = tuple(bit in {True, "1"} for bit in match)
    sure = (confidence,) * len(bits) if isinstance(confidence, float) else tuple(confidence)
    known = {"prompt_id": prompt_id, "category": category, "match": bits, "confidence": sure}
    return DraftTrace(**known | {"tokens": tuple(range(len(bits)))} | more)


def read_trace(path: Path) -> tuple[DraftTrace, list[dict[str, Any]]]:
    """Return what was traced and recorded, and what real programs counted on the same prompt."""
    said = json.loads(path.read_text(encoding="utf-8"))
    traced = trace_of(
        said["match"],
        said["prompt_id"],
        confidence=said["confidence"],
        tokens=tuple(said["tokens"]),
        overlap=tuple(said["overlap"]),
        n_prompt=said["n_prompt"],
    )
    return traced, [dict(zip(said["columns"], row, strict=True)) for row in said["runs"]]


def traced_run(**asked: Any) -> TracedRun:
    """Return a run over a trace, from its own fields and those of its drafting."""
    of_run = {name: asked.pop(name) for name in _OF_RUN if name in asked}
    return TracedRun(drafting=Drafting(**asked), **of_run)


def rounds_of(text: DraftTrace, **asked: Any) -> tuple[Round, ...]:
    """Return what each round drafts and accepts; see ``trace.steps``."""
    return tuple(Round(step.drafted, int(step.accepted)) for step in trace.steps(text, traced_run(**asked)))
