"""The speed-up by target and drafter, by γ and category of one pair, or over users and depth, as maps."""

from __future__ import annotations

import json
from collections.abc import Iterable

import altair as alt

from ggufspec import units
from ggufspec.analysis import CrossoverCell, CrossoverMap, arms, read_crossover
from ggufspec.domain import SpeedVerdict
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.report.plot import look
from ggufspec.report.rows.runs import (
    ArmOnPrompts,
    CategoryRow,
    CrossoverCellRow,
    Datum,
    HeatRow,
    distinct,
    drafting_rows,
    harmless_data,
    stem,
)
from ggufspec.report.text.crossovers import describe_cell
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
        for row in (harmless_data(CategoryRow.record(part)) for part in ArmOnPrompts.by_category(arm))
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


_HEIGHT = 40  # of a row


def crossover_rows(results: ResultSet) -> list[Datum]:
    """Return what ``crossover`` draws, one row per known cell; none for a bench that is no crossover.

    Columns: users, depth, source, verdict, gamma, speedup, speedup_lo, speedup_hi, gain, label. ``across``
    and ``down`` count the cell's place from 0. ``ends_right`` and ``ends_below`` are whether the policy
    changes between drafting and not at that border of the cell.
    """
    crossover_map = read_crossover(results)
    if crossover_map is None:
        return []
    return [_row(crossover_map, cell) for cell in crossover_map.cells if cell.best is not None]


def crossover(results: ResultSet) -> alt.LayerChart | None:
    """Return the speed-up of the best γ over users × depth; None for a bench that is no crossover."""
    return draw_crossover(crossover_rows(results))


def draw_crossover(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``crossover_rows``."""
    if not rows:
        return None
    base = alt.Chart(look.values(rows)).encode(tooltip=look.tooltip(CrossoverCellRow))
    cells = base.mark_rect(stroke="white", strokeWidth=3).encode(
        x=_across(rows, "across"),
        x2="across_end:Q",
        y=_down(rows, "down"),
        y2="down_end:Q",
        color=look.speedup_colour(rows),
    )
    text = base.mark_text(fontWeight="bold", color=look.INK).encode(
        x=_across(rows, "across_middle"), y=_down(rows, "down_middle"), text="label:N"
    )
    right = (
        base.transform_filter(alt.datum.ends_right)
        .mark_rule(color=look.VERMILLION, strokeWidth=3)
        .encode(x=_across(rows, "across_end"), y=_down(rows, "down"), y2="down_end:Q")
    )
    below = (
        base.transform_filter(alt.datum.ends_below)
        .mark_rule(color=look.VERMILLION, strokeWidth=3)
        .encode(x=_across(rows, "across"), x2="across_end:Q", y=_down(rows, "down_end"))
    )
    extremes = look.describe_extremes(
        rows, lambda row: f"for {units.counted(row['users'], 'user')} at depth {row['depth']:,}"
    )
    return look.dress(
        *(cells, right, below, text),
        description=f"Speed-up of the best draft size over the target alone by users and depth: {extremes}.",
        height=max(90, _HEIGHT * len(distinct(rows, "users"))),
    )


def _row(crossover_map: CrossoverMap, cell: CrossoverCell) -> Datum:
    best = cell.best
    assert best is not None
    across, down = crossover_map.depths.index(cell.depth), crossover_map.users.index(cell.users)
    return {
        "users": cell.users,
        "depth": cell.depth,
        "source": cell.source.value,
        "verdict": cell.verdict.value,
        "gamma": best.draft,
        **look.flatten("speedup", best.speedup),
        "gain": units.format_factor(best.speedup.value),
        "label": describe_cell(cell),
        "across": across,
        "across_middle": across + 0.5,
        "across_end": across + 1,
        "down": down,
        "down_middle": down + 0.5,
        "down_end": down + 1,
        "ends_right": _changes(crossover_map, cell, users=0, depths=1),
        "ends_below": _changes(crossover_map, cell, users=1, depths=0),
    }


def _changes(crossover_map: CrossoverMap, cell: CrossoverCell, users: int, depths: int) -> bool:
    """Whether the policy changes between drafting and not at a cell's border to a neighbour, if there is one.

    Args:
        crossover_map: which has both.
        cell: one of its cells.
        users: how many rows further down the neighbour is.
        depths: how many columns further right it is.
    """
    down, across = (
        crossover_map.users.index(cell.users) + users,
        crossover_map.depths.index(cell.depth) + depths,
    )
    if down == len(crossover_map.users) or across == len(crossover_map.depths):
        return False
    other = crossover_map.by_point[TrafficPoint(crossover_map.users[down], crossover_map.depths[across])]
    return other.best is not None and (other.choice is None) != (cell.choice is None)


def _across(rows: list[Datum], field: str) -> alt.X:
    """Return the axis of depths; all layers have the same, so that they share it."""
    count, axis = _labels(rows, "across", "depth")
    scale = alt.Scale(domain=[0, count], nice=False)
    return alt.X(f"{field}:Q", title="depth: tokens before each prompt", scale=scale, axis=axis)


def _down(rows: list[Datum], field: str) -> alt.Y:
    """Return the axis of users, the fewest on top."""
    count, axis = _labels(rows, "down", "users")
    scale = alt.Scale(domain=[0, count], nice=False, reverse=True)
    return alt.Y(f"{field}:Q", title="users", scale=scale, axis=axis)


def _labels(rows: list[Datum], axis_position: str, name: str) -> tuple[int, alt.Axis]:
    """Return the number of equally wide cells, and an axis with their values in the middle of each."""
    labels = {row[axis_position]: f"{row[name]:,}" for row in rows}
    count = max(labels) + 1
    texts = json.dumps([labels.get(number, "") for number in range(count)])
    middles = [number + 0.5 for number in range(count)]
    shown = f"{texts}[floor(datum.value)]"
    return count, alt.Axis(values=middles, labelExpr=shown, grid=False, domain=False, ticks=False)
