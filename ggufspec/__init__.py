"""Measure, tune and plan speculative decoding with llama.cpp's own programs.

The API for notebooks. Heavy modules are imported on first use.

    results = ggufspec.bench(draft=(3, 5, 8))     # or target="big.gguf", draft_model="small.gguf", ngl=45
    ggufspec.bench(prompt=ggufspec.Prompt(id="call", messages=[…], tools=[…]))  # what a suite in TOML takes
    ggufspec.summary(results)                     # pandas: one row per arm
    ggufspec.runs(ggufspec.load("last"))          # pandas: one row per measured run
    ggufspec.compare(before, after)               # two benches, arm by arm
    ggufspec.tune(pair="demo").overall            # the fastest way to run a target
    ggufspec.auto("user/repo:Q4_K_M").overall     # the same from a name: drafters, download, tuning
    ggufspec.crossover(pair="demo").users_limit(depth=0)  # from how many users on drafting does not pay
    ggufspec.plan("llama-3-70b", vram="24G").best # how many layers fit; only headers are read
    ggufspec.whatif("llama-3-70b", machine="h100", alpha=0.8).best  # what drafting would gain
    ggufspec.fetch("qwen3-8b").pair               # download a pair; also check and suggest
    ggufspec.models().pairs                       # what is on this machine, and what can draft for what
    ggufspec.convert("user/head", target="user/target")  # a published head becomes a GGUF
    ggufspec.plot.curve(results)                  # an Altair chart; also heatmap, positions, pareto
    ggufspec.frames.comparison(compared)          # more tables: categories, prompts, positions, rounds
    ggufspec.why(results)                         # where the time goes, and what would pay most
    ggufspec.publish(results)                     # a redacted bundle; also verify and board
    ggufspec.bench(ggufspec.paste("llama-server -m …").options)  # the command that you run today
    ggufspec.parse("old.log")                     # the figures in a llama.cpp log of any era, or in its text
    ggufspec.__version__                          # the version of this package
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ggufspec import lazy, notebooks

if TYPE_CHECKING:  # `as` says to type checkers that a name is public
    __version__: str
    from ggufspec.api import *  # noqa: F403  # all functions of commands
    from ggufspec.domain import Sample as Sample
    from ggufspec.options import BenchOptions as BenchOptions
    from ggufspec.prompts import Prompt as Prompt
    from ggufspec.report import frames as frames, plot as plot, runs as runs, summary as summary
    from ggufspec.results import ResultSet as ResultSet, load as load
    from ggufspec.steps import Sink as Sink


def _html(value: object) -> str:
    from ggufspec.report.html import notebook

    return notebook.notebook_html(value)


notebooks.register(_html)
_load, __dir__ = lazy.attach(__name__)


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    return import_module("importlib.metadata").version("ggufspec") if name == "__version__" else _load(name)
