"""Measure, tune and plan speculative decoding with llama.cpp's own programs.

The API for notebooks. Heavy modules are imported on first use.

    results = ggufspec.bench(draft=(3, 5, 8))     # or target="big.gguf", draft_model="small.gguf", ngl=45
    ggufspec.summary(results)                     # pandas: one row per arm
    ggufspec.runs(ggufspec.load("last"))          # pandas: one row per measured run
    ggufspec.compare(before, after)               # two benches, arm by arm
    ggufspec.tune(pair="demo").overall            # the fastest way to run a target
    ggufspec.auto("user/repo:Q4_K_M").overall     # the same from a name: drafters, download, tuning
    ggufspec.crossover(pair="demo").users_limit(depth=0)  # from how many users on drafting does not pay
    ggufspec.plan("llama-3-70b", vram="24G").best # how many layers fit; only headers are read
    ggufspec.whatif("llama-3-70b", machine="h100", alpha=0.8).best  # what drafting would gain
    ggufspec.fetch("qwen3-8b")                    # download a pair; also check and suggest
    ggufspec.convert("user/head", target="user/target")  # a published head becomes a GGUF
    ggufspec.plot.curve(results)                  # an Altair chart; also heatmap, positions, pareto
    ggufspec.frames.comparison(compared)          # more tables: categories, prompts, positions, rounds
    ggufspec.why(results)                         # where the time goes, and what would pay most
    ggufspec.publish(results)                     # a redacted bundle; also verify and board
    ggufspec.parse("old.log")                     # the figures in a llama.cpp log of any era, or in its text
    ggufspec.__version__                          # the version of this package
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ggufspec import notebooks

if TYPE_CHECKING:
    __version__: str
    from ggufspec.analysis import compare, why
    from ggufspec.domain import Sample
    from ggufspec.forecast.planning import plan
    from ggufspec.forecast.whatif import whatif
    from ggufspec.llama.logs import parse
    from ggufspec.measure import bench
    from ggufspec.modelfiles.api import check, convert, fetch, suggest
    from ggufspec.options import BenchOptions
    from ggufspec.publishing.api import board, publish, verify
    from ggufspec.report import frames, plot
    from ggufspec.report.frames import runs, summary
    from ggufspec.results import ResultSet, load
    from ggufspec.tuning import auto, crossover, tune

__all__ = [
    "BenchOptions",
    "ResultSet",
    "Sample",
    "auto",
    "bench",
    "board",
    "check",
    "compare",
    "convert",
    "crossover",
    "fetch",
    "frames",
    "load",
    "parse",
    "plan",
    "plot",
    "publish",
    "runs",
    "suggest",
    "summary",
    "tune",
    "verify",
    "whatif",
    "why",
]

_HOMES = {
    "BenchOptions": "ggufspec.options",
    "ResultSet": "ggufspec.results",
    "Sample": "ggufspec.domain",
    "auto": "ggufspec.tuning",
    "bench": "ggufspec.measure",
    "board": "ggufspec.publishing.api",
    "check": "ggufspec.modelfiles.api",
    "compare": "ggufspec.analysis",
    "convert": "ggufspec.modelfiles.api",
    "crossover": "ggufspec.tuning",
    "fetch": "ggufspec.modelfiles.api",
    "load": "ggufspec.results",
    "parse": "ggufspec.llama.logs",
    "plan": "ggufspec.forecast.planning",
    "publish": "ggufspec.publishing.api",
    "runs": "ggufspec.report.frames",
    "suggest": "ggufspec.modelfiles.api",
    "summary": "ggufspec.report.frames",
    "tune": "ggufspec.tuning",
    "verify": "ggufspec.publishing.api",
    "whatif": "ggufspec.forecast.whatif",
    "why": "ggufspec.analysis",
}
_MODULES = {"frames": "ggufspec.report.frames", "plot": "ggufspec.report.plot"}


def _html(value: object) -> str:
    from ggufspec.report.html import notebook

    return notebook.notebook_html(value)


notebooks.register(_html)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name == "__version__":
        return import_module("importlib.metadata").version("ggufspec")
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
