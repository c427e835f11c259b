"""The list of stored benches for people."""

from __future__ import annotations

from collections.abc import Iterable

from ggufspec.analysis import ListedBench
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.listing import ListedBenchRow
from ggufspec.report.text import tables

_NAMES = ("name", "date", "model_names", "sizes", "gain", "is_complete")
_BENCHES = TableLayout(row=ListedBenchRow, names=_NAMES, always=_NAMES)


def table(benches: Iterable[ListedBench], output: str = "md") -> str:
    """Return one row per bench, in Markdown or for the terminal; times are UTC."""
    filled = _BENCHES.fill(benches)
    return f"{tables.render(filled, output)}\n" if filled.rows else "No bench is stored yet.\n"
