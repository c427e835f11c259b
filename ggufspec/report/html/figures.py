"""The charts of a page, each with its title, what it shows, its words for the blind, and its data."""

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
    """One chart: ``spec`` draws it, ``alternative`` says it in words, ``data`` are its numbers."""

    name: str
    title: str
    caption: str
    alternative: str
    spec: Mapping[str, Any]
    data: Table


@dataclass(frozen=True, kw_only=True)
class _Kind:
    title: str
    caption: str
    fields: tuple[Field, ...]


_PERCENT = units.format_percent
_ARM = Field(name="label", head="arm")
_SPEEDUP = number("speedup", "speed-up", units.format_factor, interval=True)
_KINDS: Mapping[str, _Kind] = {
    "curve": _Kind(
        title="Speed over draft size",
        caption="Tokens per second by γ, the number of tokens drafted per round, with 95 % intervals over "
        "prompts and repeats. The dotted line and its band are the target alone: what lies above is a gain.",
        fields=(
            Field(name="series", head="arm"),
            Field(name="kind", head="kind"),
            number("gamma", "γ"),
            rate("tps"),
            Field(name="gain", head="speed-up", number=True),
        ),
    ),
    "heatmap": _Kind(
        title="Where drafting pays",
        caption="Speed-up over the target alone: blue is faster, orange is slower. Where several settings "
        "share a field, the fastest stands there.",
        fields=(
            Field(name="down", head="row"),
            Field(name="across", head="column"),
            number("gamma", "γ"),
            _SPEEDUP,
        ),
    ),
    "positions": _Kind(
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
    "rounds": _Kind(
        title="Where a round's time goes",
        caption="Milliseconds of a mean round: the drafter proposing tokens, the target verifying them in "
        "one batch, and the rest.",
        fields=(
            _ARM,
            Field(name="part", head="spent on"),
            number("ms", "ms per round", three_digits),
            number("share", "share", _PERCENT),
        ),
    ),
    "pareto": _Kind(
        title="Memory against speed",
        caption="Memory and tokens per second. The axis says which memory: that of the GPUs where it is "
        "known, else what llama.cpp's process held on the host. Blue diamonds on the dashed line are the "
        "Pareto front: no other arm is as small and faster.",
        fields=(
            _ARM,
            number("memory_mib", "MiB", "{:.1f}"),
            rate("tps"),
            Field(name="gain", head="speed-up", number=True),
            Field(name="front", head="on the front", show=lambda value: "yes" if value else "no"),
        ),
    ),
    "drift": _Kind(
        title="Drift and disturbances",
        caption="Each run's tokens per second over the usual of its arm and prompt, by time. Anchors repeat "
        "one configuration, so a slope of their line is the machine's. Disturbed runs shared it with other "
        "programs.",
        fields=(
            number("minutes", "minute", "{:.2f}"),
            _ARM,
            Field(name="prompt", head="prompt"),
            Field(name="kind", head="kind"),
            rate("tps", interval=False),
            number("relative", "of its usual", _PERCENT),
            number("others_cores", "cores used by others", "{:.2f}"),
        ),
    ),
}


def figures(results: ResultSet, forecasts: Sequence[Forecast] = ()) -> tuple[Figure, ...]:
    """Return the charts that these results have something for, in the order in which one asks."""
    made = plot.drawn(results, forecasts)
    return tuple(
        Figure(
            name=name,
            title=kind.title,
            caption=kind.caption,
            alternative=str(made[name].chart.description),
            spec=browser.spec(made[name].chart),
            data=table(f"Data of the chart: {kind.title}", made[name].rows, kind.fields),
        )
        for name, kind in _KINDS.items()
        if name in made
    )
