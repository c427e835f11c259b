"""Every chart by its name, and all for which a bench has data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from ggufspec.forecast import Forecast
from ggufspec.report.columns import FilledTable, Row, TableLayout
from ggufspec.report.plot import curves, drawing, heatmaps, inside_rounds
from ggufspec.report.rows import runs
from ggufspec.report.rows.runs import Datum
from ggufspec.results import ResultSet

CHARTS: Mapping[
    str, tuple[type[Row], Callable[..., list[Datum]], Callable[[list[Datum]], alt.LayerChart | None]]
] = {
    "crossover": (runs.CrossoverCellRow, heatmaps.crossover_rows, heatmaps.draw_crossover),
    "curve": (runs.CurveRow, curves.curve_rows, curves.draw_curve),
    "heatmap": (runs.HeatRow, heatmaps.heatmap_rows, heatmaps.draw_heatmap),
    "positions": (runs.AcceptedAtRow, inside_rounds.position_rows, inside_rounds.draw_positions),
    "segments": (runs.AcceptedInRow, inside_rounds.segment_rows, inside_rounds.draw_segments),
    "rounds": (runs.SpentRow, inside_rounds.round_rows, inside_rounds.draw_rounds),
    "pareto": (runs.MemorySpeedRow, curves.pareto_rows, curves.draw_pareto),
    "drift": (runs.DriftRow, curves.drift_rows, curves.draw_drift),
}
"""Every chart by name, in the order of a page: what its rows are, what makes them, and what draws them."""


class Drawn(NamedTuple):
    """A chart, its rows, and what these are."""

    chart: alt.LayerChart
    rows: list[Datum]
    row: type[Row]

    @property
    def title(self) -> str:
        """What stands above it on a page."""
        return (inspect.getdoc(self.row) or "").partition(".")[0]

    @property
    def caption(self) -> str:
        """What it shows, and how it is read."""
        return " ".join((inspect.getdoc(self.row) or "").split("\n")[1:]).strip()

    @property
    def spec(self) -> dict[str, Any]:
        """What draws it on a page."""
        return drawing.spec(self.chart)

    @property
    def table(self) -> FilledTable:
        """Its rows for people."""
        return TableLayout(row=self.row, names=self.row.fields()).fill(self.rows)


def drawn(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> dict[str, Drawn]:
    """Return every chart for which these results have data, by name."""
    charts: dict[str, Drawn] = {}
    for name, (row, rows_of, draw) in CHARTS.items():
        if name == "curve" and "crossover" in charts:
            continue  # the map has every cell, in less space than their bars
        rows = rows_of(results, forecasts) if name == "curve" else rows_of(results)
        chart = draw(rows) if rows else None
        if chart is not None:
            is_bars = name == "curve" and not curves.has_curve(rows)
            charts[name] = Drawn(chart, rows, runs.BarRow if is_bars else row)
    return charts
