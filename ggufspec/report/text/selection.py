"""Which columns of a table people see: at most ten, those that tell the rows apart and then results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ggufspec import units

if TYPE_CHECKING:  # only report/frames imports pandas at run time
    from pandas import DataFrame

MOST = 10
"""Columns of a table for people."""
_RESULTS = 5  # columns that settings leave free

_SETTINGS = (
    *("draft_model", "method", "draft_n_max", "draft_p_min", "synthetic_accept"),
    *("n_gpu_layers", "n_gpu_layers_draft", "threads", "kv_type", "ubatch", "settings", "target", "pair"),
)
"""Columns that are shown where they vary, the first ones first."""
_SHOWN = {
    "arm": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict", "status"),
    "category": ("prompts", "gen_tps", "accept_rate", "mean_accepted_length", "speedup", "verdict"),
    "prompt": ("category", "repeats", "gen_tps", "accept_rate", "mean_accepted_length", "speedup"),
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


def keep(names: Sequence[str], first_left_out: Sequence[str]) -> list[str]:
    """Return the columns of a table, without so many of those to leave out that at most ten remain."""
    left_out = [name for name in first_left_out if name in names][: max(0, len(names) - MOST)]
    return [name for name in names if name not in left_out][:MOST]


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


def note(hidden: int, bench: str, per: str) -> Iterator[str]:
    """Yield the line below a table without some of its columns.

    Args:
        hidden: how many columns are left out.
        bench: the bench's id.
        per: what has a row.
    """
    if hidden:
        verb = "is" if hidden == 1 else "are"
        rows = "" if per == "arm" else f" --per {per}"
        yield (
            f"{units.counted(hidden, 'column')} {verb} hidden: "
            f"`ggufspec show {bench}{rows} --columns all` shows all of them."
        )
