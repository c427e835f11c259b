"""What every engine brings back from one run."""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.domain import Sample


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run's figures; ``error`` is the line that says why a run failed, None for a good one."""

    sample: Sample
    argv: tuple[str, ...]
    wall_s: float
    peak_rss_bytes: int | None = None
    error: str | None = None
