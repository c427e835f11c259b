"""The speed-up by target and drafter, or by γ and category of one pair."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from ggufspec import units
from ggufspec.analysis import arms
from ggufspec.domain import SpeedVerdict
from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum, distinct, drafting_rows, stem
from ggufspec.report.rows.charts import HeatRow
from ggufspec.report.rows.runs import ArmOnPrompts, CategoryRow
from ggufspec.results import ResultSet


def heatmap_rows(results: ResultSet) -> list[Datum]:
    """Return what ``heatmap`` draws, one row per cell.

    Columns: across, down, axes (what these are), gamma, speedup, speedup_lo, speedup_hi, gain, label. Where
    several settings share a cell, it has the fastest. Benches of several loads have none: a cell would mix
    them.
    """
    drafting = [row for row in drafting_rows(results) if row["speedup"]]
    if len({row["load"] for row in drafting}) > 1:
        return []
    if len({(row["target"], row["drafter"]) for row in drafting}) > 1:
        for row in drafting:
            row |= {"across": stem(row["drafter"]), "down": stem(row["target"]), "axes": "drafter, target"}
        return _fastest(drafting)
    by_category = [
        row
        for arm in arms.group(results)
        for row in (look.harmless_data(CategoryRow.record(part)) for part in ArmOnPrompts.by_category(arm))
        if row["speedup"] and row["category"] and row["draft"] is not None
    ]
    for row in by_category:
        row |= {"across": row["category"], "down": row["draft"], "axes": "category, γ"}
    return sorted(_fastest(by_category), key=lambda row: int(row["down"]))


def heatmap(results: ResultSet) -> alt.LayerChart | None:
    """Return the speed-up over target × drafter, or over γ × category where there is one pair.

    None where nothing was compared, or the one pair's prompts have no categories.
    """
    return draw_heatmap(heatmap_rows(results))


def draw_heatmap(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``heatmap_rows``."""
    if not rows:
        return None
    across, down = str(rows[0]["axes"]).split(", ")
    columns = distinct(rows, "across")
    base = alt.Chart(look.values(rows)).encode(
        x=alt.X(
            "across:N",
            sort=None,
            title="category of the prompts" if across == "category" else across,
            axis=alt.Axis(
                labelAngle=-35 if len(columns) > 4 else 0,
                labelLimit=110 if len(columns) > 3 else 165,
                domain=False,
                ticks=False,
            ),
            scale=alt.Scale(padding=0.04),
        ),
        y=alt.Y(
            "down:N",
            sort=None,
            title="γ (draft size)" if down == "γ" else down,
            axis=alt.Axis(labelLimit=110),
            scale=alt.Scale(padding=0.06),
        ),
        tooltip=look.tooltip(HeatRow, down=down, across=across),
    )
    cells = base.mark_rect(cornerRadius=3).encode(color=look.speedup_colour(rows))
    text = base.mark_text(fontWeight="bold", color=look.INK).encode(text="label:N")
    extremes = look.describe_extremes(rows, lambda row: f"at {down} {row['down']}, {across} {row['across']}")
    return look.dress(
        *(cells, text),
        description=f"Speed-up over the target alone by {down} and {across}: {extremes}.",
        height=max(90, 34 * len(distinct(rows, "down"))),
    )


def _fastest(rows: Iterable[Datum]) -> list[Datum]:
    best: dict[tuple[object, object], Datum] = {}
    for row in rows:
        key = (row["across"], row["down"])
        if key not in best or row["speedup"] > best[key]["speedup"]:
            best[key] = row
    return [
        {
            **{name: row[name] for name in ("across", "down", "axes", "speedup", "speedup_lo", "speedup_hi")},
            "gamma": row["draft"],
            "gain": units.format_factor(row["speedup"]),
            "label": units.format_factor(row["speedup"]) + "?" * (row["verdict"] == SpeedVerdict.UNDECIDED),
        }
        for row in best.values()
    ]
