"""What all charts share: colours, axes, legends and size."""

from __future__ import annotations

from typing import Any

import altair as alt

from ggufspec.report.plot.rows import Row

PALETTE = ("#2f7fc1", "#d55e00", "#009e73", "#b765a6", "#a67c00", "#7a7a7a")
"""After Okabe and Ito (2008), each with a contrast of 3 or more on white and on a dark page."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
BLUE, VERMILLION = PALETTE[:2]
QUIET = PALETTE[-1]
INK = "#24292f"
WIDTH, HEIGHT = 560, 300
_ROW, _SYMBOL = 52, 4  # letters that fit in one line on a phone, and the width of a symbol in letters
_TICKS = 16
_BEYOND = 1.6  # times the highest value
_GRID = "#d8dee4"


def values(rows: list[Row]) -> alt.InlineData:
    """Return rows as a chart's own data; layers of the same rows share them."""
    return alt.InlineData(values=rows)


def whole_numbers(rows: list[Row], name: str) -> alt.Axis:
    """Return an axis with a tick at every value of a column, or at round numbers if there are many."""
    numbers = sorted({row[name] for row in rows})
    return (
        alt.Axis(values=numbers, format="d")
        if len(numbers) <= _TICKS
        else alt.Axis(tickMinStep=1, format="d")
    )


def speeds(rows: list[Row]) -> alt.Scale:
    """Return the scale of ``tps`` from 0; intervals far beyond all values are cut."""
    highest = max(row["tps"] for row in rows) * _BEYOND
    if max(row["tps_hi"] or 0 for row in rows) <= highest:
        return alt.Scale(zero=True)
    return alt.Scale(zero=True, domainMax=highest, clamp=True)


def series_scale(names: list[str]) -> tuple[alt.Scale, alt.Scale]:
    """Return colours and shapes of named series; after six series, colours repeat with other shapes."""
    colours = [PALETTE[place % len(PALETTE)] for place in range(len(names))]
    shapes = [SHAPES[(place + place // len(PALETTE)) % len(SHAPES)] for place in range(len(names))]
    return alt.Scale(domain=names, range=colours), alt.Scale(domain=names, range=shapes)


def legend(names: list[str]) -> alt.Legend | None:
    """Return a legend above the chart; None for fewer than two names."""
    if len(names) < 2:
        return None
    columns = max(1, min(4, _ROW // (max(map(len, names)) + _SYMBOL)))
    return alt.Legend(
        orient="top",
        title=None,
        columns=columns,
        labelLimit=240,
        symbolStrokeWidth=2,
        symbolSize=70,
        symbolOpacity=1,
    )


def dress(*layers: Any, description: str, height: int = HEIGHT) -> alt.LayerChart:
    """Return layers as one chart with our fonts, lines and size; ``description`` is for screen readers."""
    chart = alt.layer(*layers).properties(width=WIDTH, height=height, description=description)
    dressed: alt.LayerChart = (
        chart.configure(font="system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            gridColor=_GRID,
            domainColor="#8b949e",
            tickColor="#8b949e",
            labelColor=INK,
            titleColor=INK,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            titlePadding=10,
            labelPadding=5,
        )
        .configure_axisX(grid=False)
        .configure_axisY(domain=False, ticks=False, tickCount=5)
        .configure_legend(labelColor=INK, titleColor=INK, labelFontSize=12, padding=0, offset=10)
        .configure_text(fontSize=12)
    )
    return dressed
