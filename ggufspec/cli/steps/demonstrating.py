"""The steps of ``demo``: build what is missing, measure the embedded pair, and say where the time went."""

from __future__ import annotations

import time

from ggufspec import units
from ggufspec.cli.entry.output import echo
from ggufspec.cli.steps import building, measuring
from ggufspec.llama import progress
from ggufspec.llama.install import installs
from ggufspec.options import BenchOptions, DemoOptions

_PAIR, _DRAFT_SIZES = "demo", (3, 8)
_SOURCE = (progress.BuildStep.FETCH, progress.BuildStep.UNPACK)


def run_demo(asked: DemoOptions) -> None:
    """Build llama.cpp where none is found, and measure the embedded pair.

    Raises:
        GgufspecError: it cannot be built or measured.
    """
    steps: dict[progress.BuildStep, float] = {}
    if not installs.is_any_found():
        building.build_with_progress(building.start_default_build(), "built", seconds=steps)
    started = time.monotonic()
    bench = asked.to(BenchOptions, pair=_PAIR, draft=_DRAFT_SIZES)
    measuring.run_bench(measuring.prepare_bench(bench), bench)
    measured_s = time.monotonic() - started
    echo(describe_time(steps, environment_s=asked.environment_s, measured_s=measured_s), err=True)


def describe_time(
    steps: dict[progress.BuildStep, float], *, environment_s: float | None, measured_s: float
) -> str:
    """Return how long each part of a demonstration took, as a line.

    Args:
        steps: seconds of the steps of the build; empty without one.
        environment_s: seconds for the Python environment; None if that is not known.
        measured_s: seconds from the checks of the bench to its table.
    """
    source_s = sum(seconds for step, seconds in steps.items() if step in _SOURCE)
    parts = {
        "environment": environment_s,
        "source": source_s if steps else None,
        "compile": sum(steps.values()) - source_s if steps else None,
        "measure": measured_s,
    }
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    listed = ", ".join(f"{name} {units.format_duration(seconds)}" for name, seconds in known.items())
    return f"time: {listed}; {units.format_duration(sum(known.values()))} in all"
