"""Every chart by its name, and all for which a bench has data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import altair as alt

from ggufspec.forecast import Forecast
from ggufspec.report.plot import curves, heatmaps, inside_rounds
from ggufspec.report.rows.runs import Datum
from ggufspec.results import ResultSet

_Rows = Callable[[ResultSet], list[Datum]]
_Draw = Callable[[list[Datum]], alt.LayerChart | None]

CHARTS: Mapping[str, tuple[_Rows, _Draw]] = {
    "crossover": (heatmaps.crossover_rows, heatmaps.draw_crossover),
    "curve": (curves.curve_rows, curves.draw_curve),
    "heatmap": (heatmaps.heatmap_rows, heatmaps.draw_heatmap),
    "positions": (inside_rounds.position_rows, inside_rounds.draw_positions),
    "segments": (inside_rounds.segment_rows, inside_rounds.draw_segments),
    "rounds": (inside_rounds.round_rows, inside_rounds.draw_rounds),
    "pareto": (curves.pareto_rows, curves.draw_pareto),
    "drift": (curves.drift_rows, curves.draw_drift),
}
"""Every chart by name: the function for its rows, and the one that draws it."""


class Drawn(NamedTuple):
    """A chart and its rows."""

    chart: alt.LayerChart
    rows: list[Datum]


def drawn(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> dict[str, Drawn]:
    """Return every chart for which these results have data, by name."""
    charts: dict[str, Drawn] = {}
    for name, (rows_of, draw) in CHARTS.items():
        if name == "curve" and "crossover" in charts:
            continue  # the map has every cell, in less space than their bars
        rows = curves.curve_rows(results, forecasts) if name == "curve" else rows_of(results)
        chart = draw(rows)
        if chart is not None:
            charts[name] = Drawn(chart, rows)
    return charts
