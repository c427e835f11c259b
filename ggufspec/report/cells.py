"""What a sweep would measure, before it does: its arms, how many runs, about how long."""

from __future__ import annotations

from ggufspec import duration, frames, report, units
from ggufspec.sweep import Suite


def cells(suite: Suite, output: str) -> str | bytes:
    """Return one row per arm with its expected seconds; for people, with a closing line."""
    expected = duration.expect(suite, duration.experience())
    frame = frames.cells(expected, runs=len(suite.prompts) * suite.repeats)
    if output != "md":
        return report.render(frame, output, title="cells")
    total = units.format_duration(sum(expected.values()))
    arms, runs = units.counted(len(expected), "arm"), units.counted(suite.n_runs, "run")
    about = f"{arms} with {units.counted(len(suite.blocks), 'baseline')}, {runs}: about {total}."
    return f"{report.render(frame, 'md')}\n{about}\n"
