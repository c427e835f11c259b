"""The rounds of a greedy run by its drafter's trace, as they are compared with those of a program."""

from __future__ import annotations

from typing import Any

from ggufspec.domain import Round
from ggufspec.forecast import trace
from ggufspec.forecast.trace import DraftTrace


def rounds_of(text: DraftTrace, **run: Any) -> tuple[Round, ...]:
    """Return what each round drafts and accepts; see ``trace.steps``."""
    return tuple(Round(step.drafted, int(step.accepted)) for step in trace.steps(text, **run))
