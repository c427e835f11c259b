"""Measure, tune and plan speculative decoding with llama.cpp's own GGUF programs.

For notebooks; nothing heavy is imported before it is used:

    results = ggufspec.bench(draft=(3, 5, 8))     # or target="big.gguf", draft_model="small.gguf", ngl=45
    ggufspec.summary(results)                     # pandas: one row per arm
    ggufspec.runs(ggufspec.load("last"))          # pandas: one row per measured run
    ggufspec.compare(before, after)               # two benches; frames.comparison makes a table of it
    ggufspec.tune(pair="demo").overall            # the fastest way to run a target
    ggufspec.plot.curve(results)                  # an Altair chart; also heatmap, positions, pareto
    ggufspec.parse(open("old.log").read())        # what a llama.cpp log of any era says
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggufspec import plot
    from ggufspec.api import bench
    from ggufspec.comparing import compare
    from ggufspec.domain import Sample
    from ggufspec.frames import runs, summary
    from ggufspec.llama.logs import parse
    from ggufspec.request import Request
    from ggufspec.results import ResultSet, load
    from ggufspec.tuning import tune

__all__ = [
    "Request",
    "ResultSet",
    "Sample",
    "bench",
    "compare",
    "load",
    "parse",
    "plot",
    "runs",
    "summary",
    "tune",
]

_HOMES = {
    "Request": "request",
    "ResultSet": "results",
    "Sample": "domain",
    "bench": "api",
    "compare": "comparing",
    "load": "results",
    "parse": "llama.logs",
    "runs": "frames",
    "summary": "frames",
    "tune": "tuning",
}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name == "plot":
        return import_module(f"{__name__}.plot")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
