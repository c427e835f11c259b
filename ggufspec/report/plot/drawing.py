"""All charts of a bench: on pages, and as pictures that a child process draws, whose end costs only them."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import altair as alt

from ggufspec import proc
from ggufspec.errors import ChartError, ChildCrashedError
from ggufspec.forecast import Forecast
from ggufspec.harmless import one_line
from ggufspec.report.columns import FilledTable, Row, TableLayout
from ggufspec.report.plot import curves, heatmaps, inside_rounds
from ggufspec.report.rows import runs
from ggufspec.report.rows.runs import Datum
from ggufspec.results import ResultSet

Format = Literal["png", "svg"]
_PROGRAM = Path(__file__).with_name("vega.py")
_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])  # of Vega-Lite, as its specs are written
_STARTING_S, _CHART_S = 120.0, 30.0  # each takes about half a second; a machine may be much slower, and busy
_LIBRARY = "vl_convert"  # of the program: an extra, as it is larger than all else together
_INSTALL = "pip install 'ggufspec[images]' adds it; without it, reports and charts as HTML or JSON work"
_HINT = "the program that draws needs some 80 GB of address space: allow more (ulimit -v unlimited)"
_MOST_CRASHES = 2  # in a row: then no chart is to blame


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What was drawn, by the names of the charts, and for each other chart why it was not."""

    drawn: Mapping[str, bytes]
    failures: Mapping[str, str]
    hint: str = _HINT

    def check(self) -> None:
        """Raise an error if a chart was not drawn.

        Raises:
            ChartError: with the names and the first reason.
        """
        if self.failures:
            reason = next(iter(self.failures.values()))
            raise ChartError(f"not drawn: {', '.join(self.failures)}: {reason}", self.hint)


def draw_pictures(charts: Mapping[str, alt.LayerChart], format: Format) -> Pictures:  # noqa: A002
    """Draw charts as pictures, ``png`` (at 144 dots per inch) or ``svg``; no browser is needed.

    A child process draws them, so that none can end this one.
    """
    if find_spec(_LIBRARY) is None:
        reason = "pictures are drawn by vl-convert, which is not installed"
        return Pictures(drawn={}, failures=dict.fromkeys(charts, reason), hint=_INSTALL)
    drawn: dict[str, bytes] = {}
    failures: dict[str, str] = {}
    rest = dict(charts)
    crashes, reason = 0, ""
    while rest and crashes < _MOST_CRASHES:
        done, reason = _run_child([*rest.values()], format)
        for name, result in zip([*rest], done, strict=False):
            del rest[name]
            if isinstance(result, bytes):
                drawn[name] = result
            else:
                failures[name] = result
        if rest:  # the first of them ended the child; another child goes on after it
            crashes = 1 if done else crashes + 1
            failures[next(iter(rest))] = reason
            del rest[next(iter(rest))]
    return Pictures(drawn=drawn, failures=failures | dict.fromkeys(rest, reason))


def image(chart: alt.LayerChart, format: Format) -> bytes:  # noqa: A002  # the usual word
    """Return a chart as a picture, ``png`` (at 144 dots per inch) or ``svg``; no browser is needed.

    Raises:
        ChartError: it cannot be drawn here.
    """
    pictures = draw_pictures({"the chart": chart}, format)
    pictures.check()
    return pictures.drawn["the chart"]


def _run_child(charts: Sequence[alt.LayerChart], format: Format) -> tuple[list[bytes | str], str]:  # noqa: A002
    """Return pictures of the first charts, or why Vega refuses one, and why the child drew no more."""
    try:
        with tempfile.TemporaryDirectory(prefix="ggufspec-") as name:
            folder = Path(name)
            files = [folder / f"{number}.{format}" for number in range(len(charts))]
            jobs = [
                {"file": str(file), "format": format, "spec": chart.to_dict(), "version": _VERSION}
                for file, chart in zip(files, charts, strict=True)
            ]
            (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
            completed, out, err = proc.capture(
                [sys.executable, "-P", str(_PROGRAM), str(folder / "jobs.json")],
                cwd=folder,
                timeout_s=_STARTING_S + _CHART_S * len(charts),
            )
            errors = [json.loads(line)["error"] for line in out.splitlines() if line.endswith("}")]
            done = [
                file.read_bytes() if error is None else one_line(error)
                for file, error in zip(files, errors, strict=False)
            ]
    except (OSError, ChildCrashedError) as error:
        return [], one_line(str(error))
    if completed.timed_out:
        return done, "it took too long"
    if completed.signal:
        return done, f"the program that draws was ended by {completed.signal}"
    return done, one_line((err.strip().splitlines() or [f"exit code {completed.returncode}"])[-1])


SCRIPT = Path(__file__).with_name("vega.js")
"""Written by ``scripts/write_vega.py``, and part of the package: the library that bundles it has 84 MB."""


@cache
def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``, some 900 kB."""
    return SCRIPT.read_text(encoding="utf-8")


def spec(chart: alt.LayerChart) -> dict[str, Any]:
    """Return a chart's Vega-Lite spec: as wide as its container, transparent, without URLs."""
    drawing: dict[str, Any] = chart.to_dict()
    del drawing["$schema"]
    sizing = {"autosize": {"type": "fit-x", "contains": "padding"}, "width": "container", "background": None}
    return {**drawing, **sizing}


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
        return spec(self.chart)

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
