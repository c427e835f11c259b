"""The charts of a page; a chart has a title, caption, alternative text and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ggufspec.forecast import Forecast
from ggufspec.report import plot
from ggufspec.report.columns import FilledTable, Row, TableLayout
from ggufspec.report.plot import browser
from ggufspec.report.rows import charts
from ggufspec.results import ResultSet


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart: ``spec`` draws it, ``alternative`` is its text for screen readers, ``data`` its numbers."""

    name: str
    title: str
    caption: str
    alternative: str
    spec: Mapping[str, Any]
    data: FilledTable


class _Chart(NamedTuple):
    title: str
    caption: str
    data: TableLayout


def _all_of(row: type[Row], *left_out: str) -> TableLayout:
    return TableLayout(row=row, names=row.fields()).without(*left_out)


_CHARTS: Mapping[str, _Chart] = {
    "crossover": _Chart(
        "Users and depth for which drafting pays",
        "The γ with the most tokens/s of all users together, and these over those of the target alone"
        " for as many users: blue is faster, orange is slower. The line separates drafting from not "
        "drafting. ~ is forecast from the cells around it; ? has an interval that includes 1.",
        _all_of(charts.CrossoverCellRow),
    ),
    "curve": _Chart(
        "Speed over draft size",
        "Tokens per second by γ, the number of tokens drafted per round, with 95 % intervals over "
        "prompts and repeats. The dotted line and its band are the target alone: points above it are "
        "faster.",
        _all_of(charts.SpeedRow, "label"),
    ),
    "bars": _Chart(
        "Speed of each arm",
        "Tokens per second, with 95 % intervals over prompts and repeats; in brackets, the speed-up "
        "over the target alone.",
        _all_of(charts.SpeedRow, "series"),
    ),
    "heatmap": _Chart(
        "Speed-up by setting",
        "Speed-up over the target alone: blue is faster, orange is slower; ? is undecided. Where "
        "several settings share a cell, it shows that with the most tokens/s.",
        _all_of(charts.HeatRow),
    ),
    "positions": _Chart(
        "Acceptance by position",
        "How often the first, second, … token of a draft was accepted, at the largest γ measured. The"
        " solid line counts all drafts; the dashed one only those whose earlier tokens were all "
        "accepted.",
        _all_of(charts.AcceptedAtRow),
    ),
    "rounds": _Chart(
        "Where a round's time goes",
        "Milliseconds of a mean round: the drafter proposes tokens, the target verifies them in one "
        "batch, and the rest.",
        _all_of(charts.SpentRow),
    ),
    "pareto": _Chart(
        "Memory against speed",
        "Memory and tokens per second. The axis says which memory: GPU memory where it is known, "
        "otherwise the memory of llama.cpp's process on the host. Blue diamonds on the dashed line "
        "are the Pareto front: no other arm is faster and needs no more memory.",
        _all_of(charts.MemorySpeedRow),
    ),
    "drift": _Chart(
        "Drift and disturbances",
        "Each run's tokens per second over the median of its arm and prompt, by time. Anchors repeat "
        "one configuration, so a slope of their line is the drift of the machine. During disturbed "
        "runs, other programs used the processor.",
        _all_of(charts.DriftRow),
    ),
}


def figures(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> tuple[Figure, ...]:
    """Return the charts for which these results have data, in the order of the page."""
    return tuple(_figure(name, drawn) for name, drawn in plot.drawn(results, forecasts).items())


def _figure(name: str, drawn: plot.Drawn) -> Figure:
    is_bars = name == "curve" and not plot.has_curve(drawn.rows)
    chart = _CHARTS["bars" if is_bars else name]
    return Figure(
        name=name,
        title=chart.title,
        caption=chart.caption,
        alternative=str(drawn.chart.description),
        spec=browser.spec(drawn.chart),
        data=chart.data.fill(drawn.rows),
    )
