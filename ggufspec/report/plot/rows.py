"""Frames as plain rows, and the names of arms in charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ggufspec import units
from ggufspec.analysis import Arm, arms
from ggufspec.domain import Role
from ggufspec.harmless import one_line
from ggufspec.report import frames
from ggufspec.results import ResultSet

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, Any]
_SHARED = (  # settings of the target alone, too
    *("llama_build", "target", "n_gpu_layers", "threads", "kv_type", "ubatch"),
)
_DRAFTING_ONLY = ("drafter", "n_gpu_layers_draft", "draft_p_min")


def plain(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame as plain Python values, absent as None.

    Control characters are replaced, because the library that draws SVG ends the process on them.
    """
    return [
        {str(name): one_line(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records")
    ]


def arm_rows(results: ResultSet) -> list[Row]:
    """Return the rows of ``frames.summary`` with names and memory, without the drafter alone.

    ``drafter`` is the drafter's file, or the method where no model drafts. ``series`` names the settings of
    an arm except γ, ``label`` the arm. ``peak_rss_bytes`` is the maximum over its runs, where known.
    """
    return [row for _, row in named_arms(results)]


def named_arms(results: ResultSet) -> list[tuple[Arm, Row]]:
    """Return the arms with their rows of ``arm_rows``."""
    named = [
        (arm, _figures(arm, row))
        for arm, row in zip(arms.group(results), plain(frames.summary(results)), strict=True)
        if arm.role is not Role.DRAFTER
    ]
    drafting = [row for arm, row in named if arm.role is Role.DRAFTING]
    varied = _varied(drafting or [row for _, row in named], (*_SHARED, *_DRAFTING_ONLY))
    for arm, row in named:
        drafts = arm.role is Role.DRAFTING
        name = _named(row, varied if drafts else [name for name in varied if name in _SHARED])
        name = ", ".join(filter(None, (name, "synthetic"))) if arm.synthetic else name
        first = f"γ={arm.draft_size}" if drafts else "target alone"
        row["label"] = f"{first}, {name}" if name else first
        row["series"] = (name or "measured") if drafts else row["label"]
    return named


def drafting_rows(results: ResultSet) -> list[Row]:
    """Return those rows that draft and have a speed."""
    return [row for row in arm_rows(results) if row["role"] == Role.DRAFTING and row["gen_tps"]]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """Return the values of a column, each once, in order."""
    return list(dict.fromkeys(row[name] for row in rows))


def stem(filename: object) -> str:
    """Return a model's name without its ending."""
    return str(filename).removesuffix(".gguf")


def _figures(arm: Arm, row: Row) -> Row:
    known = [size for size in arm.good.column("peak_rss_bytes") if size]
    return {
        **row,
        "drafter": None if arm.draft_size is None else one_line(arm.models[-1]),
        "rate": row["gen_tps"] and units.format_rate(row["gen_tps"]),
        "gain": row["speedup"] and f"{row['speedup']:.2f}×",
        "peak_rss_bytes": max(known, default=None),
    }


def _named(row: Row, names: Sequence[str]) -> str:
    """Return the values of some columns as text: ``small, p-min 0.5``."""
    return ", ".join(_FORMATS[name](row[name]) for name in names if row[name] is not None)


def _varied(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    return [name for name in names if len({row[name] for row in rows}) > 1]


_FORMATS: dict[str, Any] = {
    "llama_build": str,
    "target": stem,
    "drafter": stem,
    "n_gpu_layers": "{} layers on the GPU".format,
    "n_gpu_layers_draft": "{} drafter layers".format,
    "draft_p_min": "p-min {:g}".format,
    "threads": "{} threads".format,
    "kv_type": "cache {}".format,
    "ubatch": "ubatch {}".format,
}
