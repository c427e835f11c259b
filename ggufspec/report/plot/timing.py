"""The time of a round: drafting, verification and the rest."""

from __future__ import annotations

import altair as alt

from ggufspec import units
from ggufspec.report.plot import look
from ggufspec.report.plot.rows import Row, distinct, drafting_rows
from ggufspec.results import ResultSet

PARTS = {"draft": "drafting", "verify": "verification", "rest": "rest"}
_ROOM = 1.35  # times the longest bar, for its label
_BAR = 24
_SHORT = 16  # longest label, in letters, with the legend in one line on a phone


def round_rows(results: ResultSet) -> list[Row]:
    """Return what ``rounds`` draws, three rows per arm: label, part, ms (per round), share (of the round)."""
    rows = []
    for row in drafting_rows(results):
        spent = {part: row[f"{name}_ms_per_round"] for name, part in PARTS.items()}
        if None in spent.values():
            continue
        total = sum(spent.values())
        rows += [
            {"label": row["label"], "part": part, "ms": ms, "share": ms / total} for part, ms in spent.items()
        ]
    return rows


def rounds(results: ResultSet) -> alt.LayerChart | None:
    """Return the milliseconds of a mean round by part; None where the engine does not measure them.

    Only the engine ``inprocess`` measures the parts of a round.
    """
    return draw_rounds(round_rows(results))


def draw_rounds(rows: list[Row]) -> alt.LayerChart | None:
    """Draw the rows of ``round_rows``."""
    if not rows:
        return None
    labels = distinct(rows, "label")
    totals = [
        {"label": label, "ms": ms, "text": f"{units.format_number(ms, 3)} ms"}
        for label in labels
        for ms in [sum(row["ms"] for row in rows if row["label"] == label)]
    ]
    parts = list(PARTS.values())
    y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelLimit=130), scale=alt.Scale(padding=0.25))
    short = max(map(len, labels)) <= _SHORT
    scale = alt.Scale(domainMax=_ROOM * max(row["ms"] for row in totals), nice=False)
    x_title = "ms per round"
    bars = (
        alt.Chart(look.values([{**row, "order": parts.index(row["part"])} for row in rows]))
        .mark_bar()
        .encode(
            y=y,
            x=alt.X("ms:Q", title=x_title, stack="zero", axis=alt.Axis(tickCount=5), scale=scale),
            order=alt.Order("order:Q"),
            color=alt.Color(
                "part:N",
                scale=alt.Scale(domain=parts, range=[look.VERMILLION, look.BLUE, look.QUIET]),
                legend=alt.Legend(orient="top", title=None, columns=3 if short else 1),
            ),
            tooltip=[
                alt.Tooltip("label:N", title="arm"),
                alt.Tooltip("part:N", title="spent on"),
                alt.Tooltip("ms:Q", title=x_title, format=".3~r"),
                alt.Tooltip("share:Q", title="share", format=".1%"),
            ],
        )
    )
    sums = (
        alt.Chart(look.values(totals), name="label_each")
        .mark_text(align="left", dx=5, color=look.INK)
        .encode(y=y, x=alt.X("ms:Q", title=x_title), text="text:N")
    )
    times = "; ".join(f"{row['label']} {row['text']}" for row in totals)
    return look.dress(
        *(bars, sums),
        description=f"Milliseconds of a mean round, by part. {times}.",
        height=max(70, _BAR * len(labels)),
    )
