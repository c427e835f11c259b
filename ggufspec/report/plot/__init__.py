"""A bench as charts: pure functions from results to Altair charts, for notebooks, files and the report.

    ggufspec.plot.curve(results)                              # shows itself in a notebook
    ggufspec.plot.curve(results).save("curve.html")           # or .json
    ggufspec.plot.image(ggufspec.plot.curve(results), "png")  # or "svg": bytes; no browser is needed

Each returns None where the results have nothing to show. Colours differ for colour-blind readers and on light
and dark pages. Numbers come from ``report.rows``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import altair as alt

from ggufspec.forecast import Forecast
from ggufspec.report.plot.curves import (
    curve,
    curve_rows,
    draw_curve,
    draw_pareto,
    has_curve,
    pareto,
    pareto_rows,
)
from ggufspec.report.plot.drawing import Pictures, draw_pictures, image
from ggufspec.report.plot.drifting import draw_drift, drift, drift_rows
from ggufspec.report.plot.heatmaps import (
    crossover,
    crossover_rows,
    draw_crossover,
    draw_heatmap,
    heatmap,
    heatmap_rows,
)
from ggufspec.report.plot.inside_rounds import (
    draw_positions,
    draw_rounds,
    draw_segments,
    position_rows,
    positions,
    round_rows,
    rounds,
    segment_rows,
    segments,
)
from ggufspec.report.plot.look import Datum
from ggufspec.results import ResultSet

__all__ = [
    "CHARTS",
    "Drawn",
    "Pictures",
    "crossover",
    "curve",
    "curve_rows",
    "draw_pictures",
    "drawn",
    "drift",
    "has_curve",
    "heatmap",
    "image",
    "pareto",
    "positions",
    "rounds",
    "segments",
]

_Rows = Callable[[ResultSet], list[Datum]]
_Draw = Callable[[list[Datum]], alt.LayerChart | None]

CHARTS: Mapping[str, tuple[_Rows, _Draw]] = {
    "crossover": (crossover_rows, draw_crossover),
    "curve": (curve_rows, draw_curve),
    "heatmap": (heatmap_rows, draw_heatmap),
    "positions": (position_rows, draw_positions),
    "segments": (segment_rows, draw_segments),
    "rounds": (round_rows, draw_rounds),
    "pareto": (pareto_rows, draw_pareto),
    "drift": (drift_rows, draw_drift),
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
        rows = curve_rows(results, forecasts) if name == "curve" else rows_of(results)
        chart = draw(rows)
        if chart is not None:
            charts[name] = Drawn(chart, rows)
    return charts
