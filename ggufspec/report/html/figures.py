"""The charts of a page; a chart has a title, caption, alternative text and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ggufspec import units
from ggufspec.forecast import Forecast
from ggufspec.report import plot
from ggufspec.report.html.tables import Field, Table, number, rate, table
from ggufspec.report.plot import browser
from ggufspec.report.text.figures import three_digits
from ggufspec.results import ResultSet


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One chart: ``spec`` draws it, ``alternative`` is its text for screen readers, ``data`` its numbers."""

    name: str
    title: str
    caption: str
    alternative: str
    spec: Mapping[str, Any]
    data: Table


@dataclass(frozen=True, kw_only=True)
class _Chart:
    title: str
    caption: str
    fields: tuple[Field, ...]


_PERCENT = units.format_percent
_ARM = Field(name="label", head="arm")
_SPEEDUP = number("speedup", "speed-up", units.format_factor, interval=True)
_CHARTS: Mapping[str, _Chart] = {
    "crossover": _Chart(
        title="Users and depth for which drafting pays",
        caption="The γ with the most tokens/s of all users together, and these over those of the target "
        "alone for as many users: blue is faster, orange is slower. The line separates drafting from not "
        "drafting. ~ is forecast from the cells around it; ? has an interval that includes 1.",
        fields=(
            number("users", "users"),
            number("depth", "depth", "{:,}"),
            number("gamma", "γ"),
            _SPEEDUP,
            Field(name="source", head="figures"),
            Field(name="verdict", head="drafting"),
        ),
    ),
    "curve": _Chart(
        title="Speed over draft size",
        caption="Tokens per second by γ, the number of tokens drafted per round, with 95 % intervals over "
        "prompts and repeats. The dotted line and its band are the target alone: points above it are faster.",
        fields=(
            Field(name="series", head="arm"),
            Field(name="kind", head="kind"),
            number("gamma", "γ"),
            rate("tps"),
            Field(name="gain", head="speed-up", number=True),
        ),
    ),
    "bars": _Chart(
        title="Speed of each arm",
        caption="Tokens per second, with 95 % intervals over prompts and repeats; in brackets, the speed-up "
        "over the target alone.",
        fields=(
            _ARM,
            Field(name="kind", head="kind"),
            number("gamma", "γ"),
            rate("tps"),
            Field(name="gain", head="speed-up", number=True),
        ),
    ),
    "heatmap": _Chart(
        title="Speed-up by setting",
        caption="Speed-up over the target alone: blue is faster, orange is slower; ? is undecided. Where "
        "several settings share a cell, it shows that with the most tokens/s.",
        fields=(
            Field(name="down", head="row"),
            Field(name="across", head="column"),
            number("gamma", "γ"),
            _SPEEDUP,
        ),
    ),
    "positions": _Chart(
        title="Acceptance by position",
        caption="How often the first, second, … token of a draft was accepted, at the largest γ measured. "
        "The solid line counts all drafts; the dashed one only those whose earlier tokens were all accepted.",
        fields=(
            Field(name="series", head="arm"),
            number("gamma", "γ"),
            number("position", "position"),
            number("share", "accepted", _PERCENT),
            Field(name="measure", head="share"),
        ),
    ),
    "rounds": _Chart(
        title="Where a round's time goes",
        caption="Milliseconds of a mean round: the drafter proposes tokens, the target verifies them in one "
        "batch, and the rest.",
        fields=(
            _ARM,
            Field(name="part", head="spent on"),
            number("ms", "ms per round", three_digits),
            number("share", "share", _PERCENT),
        ),
    ),
    "pareto": _Chart(
        title="Memory against speed",
        caption="Memory and tokens per second. The axis says which memory: GPU memory where it is known, "
        "otherwise the memory of llama.cpp's process on the host. Blue diamonds on the dashed line are the "
        "Pareto front: no other arm is faster and needs no more memory.",
        fields=(
            _ARM,
            number("memory_mib", "MiB", "{:.1f}"),
            rate("tps"),
            Field(name="gain", head="speed-up", number=True),
            Field(name="front", head="on the front", show=lambda value: "yes" if value else "no"),
        ),
    ),
    "drift": _Chart(
        title="Drift and disturbances",
        caption="Each run's tokens per second over the median of its arm and prompt, by time. Anchors repeat "
        "one configuration, so a slope of their line is the drift of the machine. During disturbed runs, "
        "other programs used the processor.",
        fields=(
            number("minutes", "minute", "{:.2f}"),
            _ARM,
            Field(name="prompt", head="prompt"),
            Field(name="kind", head="kind"),
            rate("tps", interval=False),
            number("relative", "of the median", _PERCENT),
            number("others_cores", "cores used by others", "{:.2f}"),
        ),
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
        data=table(f"Data of the chart: {chart.title}", drawn.rows, chart.fields),
    )
