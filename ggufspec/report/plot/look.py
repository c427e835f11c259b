"""What all charts share: colours, axes, legends, tooltips and size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from ggufspec import units
from ggufspec.domain import Estimate
from ggufspec.report.columns import Row
from ggufspec.report.rows.benches import two_digits, with_commas
from ggufspec.report.rows.runs import Datum
from ggufspec.report.text import figures

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
_ROOM = 1.1  # times the highest end of an interval, for a label above it
_GRID = "#d8dee4"


def flatten(name: str, estimate: Estimate) -> Datum:
    """Return an estimate as a chart's data have it: its value, and the ends of its interval."""
    return {name: estimate.value, f"{name}_lo": estimate.lo, f"{name}_hi": estimate.hi}


_VEGA: Mapping[Callable[[Any], str] | None, str] = {
    units.format_rate: ".4~r",
    units.format_percent: ".1%",
    units.format_factor: ".2f",
    figures.three_digits: ".3~r",
    two_digits: ".2f",
    with_commas: ",",
}
"""How a column is shown -> the same as a format of Vega."""


def tooltip(row: type[Row], **heads: str) -> list[alt.Tooltip]:
    """Return what a mark says when it is pointed at: the columns of a row type, intervals after their values.

    Args:
        row: of ``rows.runs``.
        heads: headings by column, where they are others than in the data's table.
    """
    shown = []
    for name, column in row.columns.items():
        form = _VEGA.get(column.show, alt.Undefined)
        encoding = "Q" if column.is_number else "N"
        ends = {"_lo": "from (95 %)", "_hi": "to (95 %)"} if column.is_estimate else {}
        for end, head in {"": heads.get(name, column.head), **ends}.items():
            shown.append(alt.Tooltip(f"{name}{end}:{encoding}", title=head, format=form))
    return shown


def values(rows: list[Datum]) -> alt.InlineData:
    """Return rows as a chart's own data; layers of the same rows share them."""
    return alt.InlineData(values=rows)


def whole_numbers(rows: list[Datum], name: str) -> alt.Axis:
    """Return an axis with a tick at every value of a column, or at round numbers if there are many."""
    numbers = sorted({row[name] for row in rows})
    return (
        alt.Axis(values=numbers, format="d")
        if len(numbers) <= _TICKS
        else alt.Axis(tickMinStep=1, format="d")
    )


def has_intervals(rows: Sequence[Datum]) -> bool:
    """Return whether a row has an interval: Vega warns of a layer of intervals without any."""
    return any(row["tps_lo"] is not None for row in rows)


def speeds(rows: list[Datum]) -> alt.Scale:
    """Return the scale of ``tps`` from 0; intervals far beyond all values are cut."""
    highest = max(row["tps"] for row in rows) * _BEYOND
    top = max(row["tps_hi"] or row["tps"] for row in rows)
    if top <= highest:
        return alt.Scale(zero=True, domainMax=_ROOM * top)
    return alt.Scale(zero=True, domainMax=highest, clamp=True)


def marks(field: str, names: list[str], looks: Sequence[tuple[str, str]] = ()) -> tuple[alt.Color, alt.Shape]:
    """Return the colours and shapes of what a field names, with one legend.

    Args:
        field: for example ``series:N``.
        names: its values, in order.
        looks: colour and shape of each. By default, colours repeat with other shapes after six names.
    """
    n = len(PALETTE)
    looks = looks or [(PALETTE[place % n], SHAPES[(place + place // n) % n]) for place in range(len(names))]
    colours, shapes = (alt.Scale(domain=names, range=[*each]) for each in zip(*looks, strict=True))
    title = legend(names)
    return alt.Color(field, scale=colours, legend=title), alt.Shape(field, scale=shapes, legend=title)


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


def speedup_colour(rows: list[Datum]) -> alt.Color:
    """Return the colour of a cell: orange where drafting is slower, blue where it is faster, grey at 1×."""
    far = max(1.05, *(max(row["speedup"], 1 / row["speedup"]) for row in rows))
    scale = alt.Scale(domain=[1 / far, 1, far], range=["#e08345", "#f4f4f4", "#5fa3d9"])  # for dark numbers
    return alt.Color("speedup:Q", scale=scale, legend=None)


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
