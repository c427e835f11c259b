"""Acceptance by position in the draft."""

from __future__ import annotations

from itertools import zip_longest

import altair as alt

from ggufspec.analysis import Acceptance
from ggufspec.report.plot import look
from ggufspec.report.plot.rows import Row, distinct, named_arms
from ggufspec.results import ResultSet

OF_ALL, GIVEN = "of all drafts", "of drafts accepted so far"


def position_rows(results: ResultSet) -> list[Row]:
    """Return what ``positions`` draws: of each series the arm with the largest γ, two rows per position.

    Columns: series, gamma, position, measure, share (0 to 1; None where no draft reached the position).
    """
    longest: dict[str, tuple[int, Acceptance]] = {}
    for arm, row in named_arms(results):
        gamma, accepted = arm.draft_size, arm.acceptance
        if gamma is None or accepted is None or not accepted.by_position:
            continue
        if row["series"] not in longest or gamma > longest[row["series"]][0]:
            longest[row["series"]] = (gamma, accepted)
    return [
        {"series": series, "gamma": gamma, "position": position, "measure": measure, "share": share}
        for series, (gamma, accepted) in longest.items()
        for position, shares in enumerate(
            zip_longest(accepted.by_position or (), accepted.conditional or ()), start=1
        )
        for measure, share in zip((OF_ALL, GIVEN), shares, strict=True)
    ]


def positions(results: ResultSet) -> alt.LayerChart | None:
    """Return the share of drafts whose first, second, … token was accepted; None if not reported.

    Each series has its largest γ, which tried every position. The dashed line counts only drafts whose
    earlier tokens were all accepted.
    """
    return draw_positions(position_rows(results))


def draw_positions(rows: list[Row]) -> alt.LayerChart | None:
    """Draw the rows of ``position_rows``."""
    if not rows:
        return None
    names = distinct(rows, "series")
    colours, shapes = look.series_scale(names)
    y_title = "accepted" if len(names) < 2 else f"accepted (dashed: {GIVEN})"
    measures = alt.StrokeDash(
        "measure:N",
        scale=alt.Scale(domain=[OF_ALL, GIVEN], range=[[1, 0], [5, 4]]),
        legend=None if len(names) > 1 else look.legend([OF_ALL, GIVEN]),  # two legends are too wide
    )
    base = alt.Chart(look.values(rows)).encode(
        x=alt.X(
            "position:Q",
            title="position in the draft",
            axis=look.whole_numbers(rows, "position"),
            scale=alt.Scale(zero=False, nice=False, padding=16),
        ),
        y=alt.Y("share:Q", title=y_title, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        color=alt.Color("series:N", scale=colours, legend=look.legend(names)),
        tooltip=[
            alt.Tooltip("series:N", title="arm"),
            alt.Tooltip("gamma:Q", title="γ"),
            alt.Tooltip("position:Q", title="position"),
            alt.Tooltip("share:Q", title="accepted", format=".1%"),
            alt.Tooltip("measure:N", title="share"),
        ],
    )
    rates = "; ".join(
        f"{row['series']}: {row['share']:.0%} at position {row['position']}"
        for row in (
            next(row for row in reversed(rows) if row["series"] == name and row["measure"] == OF_ALL)
            for name in names
        )
    )
    return look.dress(
        base.mark_line(strokeWidth=2).encode(strokeDash=measures),
        base.mark_point(filled=True, size=45, opacity=1).encode(
            shape=alt.Shape("series:N", scale=shapes, legend=look.legend(names))
        ),
        description=f"Share of draft tokens accepted, by position in the draft. {rates}.",
    )
