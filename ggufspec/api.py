"""Each command as one function: what the command line calls, and a notebook, with the same names of options.

A function takes the options of its command as one value or as keyword arguments, and returns a value that has
all that the command prints. Those that work for long also take a ``sink``, which gets what they say and draw.
They are beside what they do, and imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggufspec.analysis import compare, models, why
    from ggufspec.forecast.planning import plan
    from ggufspec.forecast.whatif import whatif
    from ggufspec.llama.build import build, list_builds, remove_builds
    from ggufspec.llama.logs import parse
    from ggufspec.measure import bench, demo, plan_bench
    from ggufspec.modelfiles.api import check, convert, fetch, suggest
    from ggufspec.pasting import paste
    from ggufspec.publishing.api import board, publish, verify
    from ggufspec.tuning import auto, crossover, forecast_tuning, serving_command, tune
    from ggufspec.tuning.bisect import bisect

__all__ = [
    "auto",
    "bench",
    "bisect",
    "board",
    "build",
    "check",
    "compare",
    "convert",
    "crossover",
    "demo",
    "fetch",
    "forecast_tuning",
    "list_builds",
    "models",
    "parse",
    "paste",
    "plan",
    "plan_bench",
    "publish",
    "remove_builds",
    "serving_command",
    "suggest",
    "tune",
    "verify",
    "whatif",
    "why",
]

_HOMES = {
    "analysis": ("compare", "models", "why"),
    "forecast.planning": ("plan",),
    "forecast.whatif": ("whatif",),
    "llama.build": ("build", "list_builds", "remove_builds"),
    "llama.logs": ("parse",),
    "measure": ("bench", "demo", "plan_bench"),
    "modelfiles.api": ("check", "convert", "fetch", "suggest"),
    "pasting": ("paste",),
    "publishing.api": ("board", "publish", "verify"),
    "tuning": ("auto", "crossover", "forecast_tuning", "serving_command", "tune"),
    "tuning.bisect": ("bisect",),
}
"""Module -> its functions."""


def __getattr__(name: str) -> Any:
    """Import a function from its module on first use."""
    for module, functions in _HOMES.items():
        if name in functions:
            return getattr(import_module(f"ggufspec.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the functions."""
    return __all__
