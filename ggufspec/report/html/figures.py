"""The charts and sortable tables of a page; a chart has a title, caption, alternative text and data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ggufspec import units
from ggufspec.forecast import Forecast
from ggufspec.report import plot
from ggufspec.report.plot import browser
from ggufspec.report.text.figures import three_digits
from ggufspec.results import ResultSet

Value = str | float | bool | None
Show = Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """The text of a cell, and its sort key; None goes last."""

    text: str
    key: Value


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: its heading, and whether it holds numbers, which are right-aligned."""

    head: str
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that can be sorted; ``caption`` is for screen readers."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Field:
    """How a column is shown: its name in the rows, its heading, and the format of its values."""

    name: str
    head: str
    show: Show = str
    number: bool = False
    interval: bool = False  # followed by <name>_lo and <name>_hi in brackets


def rate(name: str, head: str = "tokens/s", *, interval: bool = True) -> Field:
    """Return a field of tokens/s, by default with its interval."""
    return Field(name=name, head=head, show=units.format_rate, number=True, interval=interval)


def number(name: str, head: str, form: str | Show = "{:d}", *, interval: bool = False) -> Field:
    """Return a field of numbers, formatted by ``str.format`` or by a function."""
    show = form.format if isinstance(form, str) else form
    return Field(name=name, head=head, show=show, number=True, interval=interval)


def table(caption: str, rows: Sequence[Mapping[str, Any]], fields: Sequence[Field]) -> Table:
    """Return rows as a table; columns without any value are left out."""
    filled = [field for field in fields if any(row.get(field.name) not in {None, ""} for row in rows)]
    return Table(
        caption=caption,
        columns=tuple(Column(head=field.head, number=field.number) for field in filled),
        rows=tuple(tuple(_cell(row, field) for field in filled) for row in rows),
    )


def _cell(row: Mapping[str, Any], field: Field) -> TableCell:
    value = row.get(field.name)
    if value is None:
        return TableCell(text="", key=None)
    text = field.show(value)
    ends = [row.get(f"{field.name}{end}") for end in ("_lo", "_hi")] if field.interval else [None]
    if None not in ends:
        text += f" [{', '.join(map(field.show, ends))}]"
    return TableCell(text=text, key=value)


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
        caption="The fastest γ, and its tokens/s of all users together over those of the target alone for as "
        "many users: blue is faster, orange is slower. The line separates drafting from not drafting. ~ is "
        "forecast from the cells around it; ? has an interval that includes 1.",
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
    "heatmap": _Chart(
        title="Where drafting pays",
        caption="Speed-up over the target alone: blue is faster, orange is slower. Where several settings "
        "share a cell, it shows the fastest.",
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
    drawn = plot.drawn(results, forecasts)
    return tuple(
        Figure(
            name=name,
            title=chart.title,
            caption=chart.caption,
            alternative=str(drawn[name].chart.description),
            spec=browser.spec(drawn[name].chart),
            data=table(f"Data of the chart: {chart.title}", drawn[name].rows, chart.fields),
        )
        for name, chart in _CHARTS.items()
        if name in drawn
    )
