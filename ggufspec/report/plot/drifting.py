"""Speed over time: drift of the machine, and disturbances by other programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import altair as alt

from ggufspec import stats
from ggufspec.domain import RunProblem
from ggufspec.harmless import one_line
from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum, named_arms
from ggufspec.report.rows.runs import DriftRow, RunColumns, RunRow
from ggufspec.results import ResultSet

RUN, ANCHOR, DISTURBED = "run", "anchor", "disturbed run"
_MOST = 2000  # ordinary runs in one chart; more are thinned evenly, but not anchors and disturbed runs
_LEAST = 0.02  # from 1 to the ends of the axis: smaller differences are no drift worth seeing


def drift_rows(results: ResultSet) -> list[Datum]:
    """Return what ``drift`` draws, one row per run with a speed, warm-ups left out.

    Columns: minutes (since the first run began), relative (tokens/s over the median of the same arm and
    prompt), kind (run, anchor, disturbed run), label, prompt, tps, others_cores.
    """
    medians: dict[tuple[str, str], float] = {}
    label_of: dict[str, str] = {}
    for arm, row in named_arms(results):
        rates = stats.per_prompt(arm.measured)  # also of runs that are excluded
        for spec in arm.good.specs:
            medians[spec.key, one_line(spec.prompt.id)] = rates[spec.prompt.id]
            label_of[spec.key] = row["label"]
    names = ("spec_key", "prompt", "started_at", "decode_tps", "warmup", "anchor", "outcome", "others_cores")
    table = RunColumns(results.runs)
    columns = [RunRow.columns[name].source(table) for name in names]
    runs = [look.harmless_data(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
    start = min((_seconds(row) for row in runs), default=0.0)
    return list(
        _thinned(
            [
                {
                    "minutes": (_seconds(row) - start) / 60,
                    "relative": row["decode_tps"] / medians[row["spec_key"], row["prompt"]],
                    "kind": ANCHOR
                    if row["anchor"]
                    else DISTURBED
                    if row["outcome"] == RunProblem.DISTURBED
                    else RUN,
                    "label": label_of[row["spec_key"]],
                    "prompt": row["prompt"],
                    "tps": row["decode_tps"],
                    "others_cores": row["others_cores"],
                }
                for row in runs
                if row["decode_tps"] and not row["warmup"] and (row["spec_key"], row["prompt"]) in medians
            ]
        )
    )


def drift(results: ResultSet) -> alt.LayerChart | None:
    """Return each run's tokens/s over the median of its arm and prompt, by time; None with fewer than two.

    Anchors, which repeat one configuration, are joined by a line: its slope is the drift of the machine.
    """
    return draw_drift(drift_rows(results))


def draw_drift(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``drift_rows``."""
    if len(rows) < 2:
        return None
    low, *_, high = sorted(row["relative"] for row in rows)
    looks = {
        RUN: (look.QUIET, "circle"),
        ANCHOR: (look.BLUE, "diamond"),
        DISTURBED: (look.VERMILLION, "cross"),
    }
    run_kinds = [run_kind for run_kind in looks if any(row["kind"] == run_kind for row in rows)]
    colour, shape = look.marks("kind:N", run_kinds, [looks[run_kind] for run_kind in run_kinds])
    x = alt.X(
        "minutes:Q",
        title="minutes since the start",
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(nice=False, padding=8),
    )
    y = alt.Y(
        "relative:Q",
        title="tokens/s, relative",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(zero=False, domain=[min(low, 1 - _LEAST), max(high, 1 + _LEAST)]),
    )
    points = (
        alt.Chart(look.values(rows))
        .mark_point(filled=True, size=40, opacity=0.75)
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=look.tooltip(DriftRow))
    )
    even = (
        alt.Chart(look.values([{"relative": 1}])).mark_rule(color=look.QUIET, strokeDash=[2, 3]).encode(y=y)
    )
    anchored = [row for row in rows if row["kind"] == ANCHOR]
    anchors = alt.Chart(look.values(anchored)).mark_line(color=look.BLUE, strokeWidth=1.5).encode(x=x, y=y)
    disturbed = sum(row["kind"] == DISTURBED for row in rows)
    return look.dress(
        *((even, anchors, points) if anchored else (even, points)),  # Vega warns of a layer without data
        description=f"Speed of {len(rows)} runs over time, relative to the median of their arm and prompt; "
        f"{disturbed} were disturbed by other programs.",
        height=240,
    )


def _seconds(row: Datum) -> float:
    return datetime.fromisoformat(row["started_at"]).timestamp()


def _thinned(rows: list[Datum]) -> Iterator[Datum]:
    step = max(1, -(-sum(row["kind"] == RUN for row in rows) // _MOST))
    n_runs = 0
    for row in rows:
        if row["kind"] != RUN or n_runs % step == 0:
            yield row
        n_runs += row["kind"] == RUN
