"""Tables with a row for each category, prompt, run, position or round, and why such a table is empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec.analysis import arms
from ggufspec.domain import Role, Status
from ggufspec.report.columns import MOST
from ggufspec.results import ResultSet

if TYPE_CHECKING:  # only report/frames imports pandas at run time
    from pandas import DataFrame

_RESULTS = 5  # columns that settings leave free

_SETTINGS = (
    *("draft_model", "method", "ngram", "draft", "p_min", "synthetic_accept"),
    *("users", "depth"),
    *("requested_ngl", "requested_ngld", "threads", "kv_type", "ubatch", "settings", "target", "pair"),
)
"""Columns that are shown where they vary, the first ones first."""
_SHOWN = {
    "arm": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict", "status"),
    "category": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict"),
    "prompt": (
        *("category", "repeats", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict"),
    ),
    "run": ("decode_tps", "accept_rate", "outcome", "text_identical", "warmup", "anchor", "wall_s", "log"),
    "position": ("n_drafts", "n_accepted", "accept_rate", "conditional_accept_rate"),
    "round": ("n_drafted", "n_accepted"),
}
"""What a table with a row per arm, category, … shows, the most important first."""
_KEYS = {
    "category": ("category",),
    "prompt": ("prompt",),
    "run": ("prompt", "repeat"),
    "position": ("category", "position"),
    "round": ("prompt", "repeat", "round"),
}
"""What a row of such a table is about, beside the arm."""


def choose(frame: DataFrame, per: str) -> tuple[list[str], int]:
    """Return the columns of a frame that people see, and how many others hold anything.

    Args:
        frame: one row per arm, category, prompt, run, position or round.
        per: which of these.
    """
    filled = [name for name in frame.columns if frame[name].notna().any()]
    varied = [name for name in _SETTINGS if name in filled and frame[name].nunique(dropna=True) > 1]
    keys = [name for name in ("role", *_KEYS.get(per, ())) if name in filled]
    results = [name for name in _SHOWN[per] if name in filled]
    room = MOST - len(keys) - min(len(results), _RESULTS)
    chosen = [*keys[:1], *varied[:room], *keys[1:], *results][:MOST]
    return chosen, len(filled) - len(chosen)


_RECORDS = {"binary": "server", "binary-simple": "server", "server": "inprocess"}
"""Engine -> one that records draft positions and rounds with any llama.cpp, if it does not itself."""
_OF_ROUNDS = {"position": "draft positions", "round": "rounds"}


def why_empty(results: ResultSet, per: str) -> str | None:
    """Return why a table of ``show --per`` is empty, and the command that measures what is missing.

    Args:
        results: a bench.
        per: what has a row: arm, category, prompt, run, position or round.

    Returns:
        One sentence; None if the table is not empty.
    """
    name, runs = results.meta.id, results.current
    if per == "arm" or (per == "run" and results.runs):
        return None
    if not runs:
        return f"{name} has no runs: `ggufspec bench` measures some"
    if not any(output.status is Status.OK for output in runs.outputs):
        return f"no run of {name} succeeded: `ggufspec show {name} --runs` shows how each of them ended"
    if per == "category" and not any(spec.prompt.category for spec in runs.specs):
        return (
            f"no prompt of {name} has a category: the prompts of `ggufspec bench --suite domains` have one, "
            'and those of your own suite can have one (category = "…")'
        )
    if per in _OF_ROUNDS and not _has_rounds(results, per):
        return _without_rounds(results, _OF_ROUNDS[per])
    return None


def _has_rounds(results: ResultSet, per: str) -> bool:
    if per == "round":
        return any(rounds for rounds in results.current.column("rounds"))
    return any(arm.acceptance and arm.acceptance.by_position for arm in arms.group(results))


def _without_rounds(results: ResultSet, what: str) -> str:
    name, engine = results.meta.id, results.meta.engine
    if not any(spec.role is Role.DRAFTING for spec in results.current.specs):
        return f"no arm of {name} drafts, so it has no {what}: give a drafter with -md FILE, or a --method"
    other = _RECORDS.get(engine)
    how = f": `ggufspec bench --engine {other}` records them" if other else ""
    return f"{name} has no {what}, because the engine {engine} did not report them{how}"
