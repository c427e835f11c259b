"""``ggufspec demo``: build llama.cpp if there is none, and measure the embedded pair."""

from __future__ import annotations

import time

from ggufspec import api, units
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.options import DemoOptions

_SOURCE = ("fetch", "unpack")  # steps of a build


@command_of(DemoOptions)
def command(asked: DemoOptions) -> None:
    """Build llama.cpp if there is none, and measure the embedded pair at γ 3 and 8.

    No model is downloaded. The last line says how long each step took.

    \b
    ggufspec demo
    ggufspec demo -o json --out demo.json
    """
    from ggufspec.cli.steps import measuring

    begun_s, terminal = time.monotonic(), measuring.terminal_for(asked)
    measuring.finish(api.demo(asked, sink=terminal), asked)
    built_s = terminal.build_seconds
    measured_s = time.monotonic() - begun_s - sum(built_s.values())
    echo(describe_time(built_s, environment_s=asked.environment_s, measured_s=measured_s), err=True)


def describe_time(steps: dict[str, float], *, environment_s: float | None, measured_s: float) -> str:
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
