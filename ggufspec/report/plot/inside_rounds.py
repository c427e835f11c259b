"""Inside the rounds: acceptance by position in the draft and by part of the answer, and where time goes."""

from __future__ import annotations

from itertools import zip_longest

import altair as alt

from ggufspec import units
from ggufspec.analysis import Acceptance, Arm, of_segments
from ggufspec.report.plot import look
from ggufspec.report.rows import runs as run_rows
from ggufspec.report.rows.runs import Datum, distinct, drafting_rows, named_arms
from ggufspec.results import ResultSet

OF_ALL, GIVEN = "of all drafts", "of drafts accepted so far"
PARTS = {"draft": "drafting", "verify": "verification", "rest": "rest"}
_ROOM = 1.35  # times the longest bar, for its label
_BAR = 24
_SHORT = 16  # longest label, in letters, with the legend in one line on a phone


def position_rows(results: ResultSet) -> list[Datum]:
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
    rows = position_rows(results)
    return draw_positions(rows) if rows else None


def draw_positions(rows: list[Datum]) -> alt.LayerChart:
    """Draw the rows of ``position_rows``."""
    names = distinct(rows, "series")
    colour, shape = look.marks("series:N", names)
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
        color=colour,
        tooltip=look.tooltip(run_rows.AcceptedAtRow),
    )
    rates = "; ".join(
        f"{row['series']}: {units.format_percent(row['share'], 0)} at position {row['position']}"
        for row in (
            next(row for row in reversed(rows) if row["series"] == name and row["measure"] == OF_ALL)
            for name in names
        )
    )
    return look.dress(
        base.mark_line(strokeWidth=2).encode(strokeDash=measures),
        base.mark_point(filled=True, size=45, opacity=1).encode(shape=shape),
        description=f"Share of draft tokens accepted, by position in the draft. {rates}.",
    )


def segment_rows(results: ResultSet) -> list[Datum]:
    """Return what ``segments`` draws: the parts of answers of each series' fastest arm."""
    fastest: dict[str, Arm] = {}
    for arm, row in named_arms(results):
        best = fastest.setdefault(row["series"], arm)
        fastest[row["series"]] = max(best, arm, key=lambda one: one.speed)
    return [
        {
            "series": series,
            "segment": part.segment.value,
            "accepted": accepted.value,
            "accepted_lo": accepted.lo,
            "accepted_hi": accepted.hi,
            "tokens_per_round": length and length.value,
            "share": part.share,
        }
        for series, arm in fastest.items()
        for part in of_segments(arm)
        if part.intervals is not None and (accepted := part.intervals.accept_rate) is not None
        for length in (part.intervals.mean_accepted_length,)
    ]


def segments(results: ResultSet) -> alt.LayerChart | None:
    """Return the share of drafted tokens that were accepted in thinking, calls, JSON, code and prose.

    None where it was not recorded in which round each token was sent. Each series has its fastest arm.
    """
    rows = segment_rows(results)
    return draw_segments(rows) if rows else None


def draw_segments(rows: list[Datum]) -> alt.LayerChart:
    """Draw the rows of ``segment_rows``."""
    names, parts = distinct(rows, "series"), distinct(rows, "segment")
    colour, shape = look.marks("series:N", names)
    base = alt.Chart(look.values(rows)).encode(
        y=alt.Y("segment:N", sort=parts, title=None, axis=alt.Axis(labelLimit=170)),
        yOffset=alt.YOffset("series:N", sort=names),
        color=colour,
        tooltip=look.tooltip(run_rows.AcceptedInRow),
    )
    scale = alt.Scale(domain=[0, 1])
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("accepted:Q", title="accepted", axis=alt.Axis(format="%"), scale=scale), shape=shape
    )
    known = any(row["accepted_lo"] is not None for row in rows)
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("accepted_lo:Q", scale=scale), x2="accepted_hi:Q")
    rates = "; ".join(
        f"{row['series']}, {row['segment']}: {units.format_percent(row['accepted'], 0)}" for row in rows
    )
    return look.dress(
        *((bars,) if known else ()),
        points,
        description=f"Share of draft tokens accepted, by part of the answers. {rates}.",
        height=max(70, _BAR * len(parts) * len(names)),
    )


def round_rows(results: ResultSet) -> list[Datum]:
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
    rows = round_rows(results)
    return draw_rounds(rows) if rows else None


def draw_rounds(rows: list[Datum]) -> alt.LayerChart:
    """Draw the rows of ``round_rows``."""
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
            tooltip=look.tooltip(run_rows.SpentRow),
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
