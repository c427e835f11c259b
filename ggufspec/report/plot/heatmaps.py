"""The speed-up by target and drafter, by γ and category of one pair, or over users and depth, as maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import itemgetter
from typing import Any

import altair as alt

from ggufspec import units
from ggufspec.analysis import CrossoverCell, CrossoverMap, arms, read_crossover
from ggufspec.domain import SpeedVerdict
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.report.plot import look
from ggufspec.report.rows import runs as run_rows
from ggufspec.report.rows.runs import Datum, distinct, drafting_rows, harmless_data, stem
from ggufspec.report.text.crossovers import describe_cell
from ggufspec.results import ResultSet

_HEIGHT = 38  # of a row of cells


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
        for row in (
            harmless_data(run_rows.CategoryRow.record(part))
            for part in run_rows.ArmOnPrompts.by_category(arm)
        )
        if row["speedup"] and row["category"] and row["draft"] is not None
    ]
    for row in by_category:
        row |= {"across": row["category"], "down": row["draft"], "axes": "category, γ"}
    return sorted(_fastest(by_category), key=lambda row: int(row["down"]))


def heatmap(results: ResultSet) -> alt.LayerChart | None:
    """Return the speed-up over target × drafter, or over γ × category where there is one pair.

    None where nothing was compared, or the one pair's prompts have no categories.
    """
    rows = heatmap_rows(results)
    return draw_heatmap(rows) if rows else None


def draw_heatmap(rows: list[Datum]) -> alt.LayerChart:
    """Draw the rows of ``heatmap_rows``."""
    across, down = str(rows[0]["axes"]).split(", ")
    n_columns = len(distinct(rows, "across"))
    titles = {"category": "category of the prompts", "γ": "γ (draft size)"}
    base = alt.Chart(look.values(rows)).encode(
        x=alt.X(
            "across:N",
            sort=None,
            title=titles.get(across, across),
            axis=alt.Axis(
                labelAngle=-35 if n_columns > 4 else 0,
                labelLimit=110 if n_columns > 3 else 165,
                domain=False,
                ticks=False,
            ),
            scale=alt.Scale(padding=0.04),
        ),
        y=alt.Y(
            "down:N",
            sort=None,
            title=titles.get(down, down),
            axis=alt.Axis(labelLimit=110),
            scale=alt.Scale(padding=0.06),
        ),
        tooltip=look.tooltip(run_rows.HeatRow, down=down, across=across),
    )
    return _draw_map(
        rows,
        base,
        about=f"Speed-up over the target alone by {down} and {across}",
        where=lambda row: f"at {down} {row['down']}, {across} {row['across']}",
        n_rows=len(distinct(rows, "down")),
    )


def _draw_map(
    rows: list[Datum],
    base: alt.Chart,
    *lines: alt.Chart,
    about: str,
    where: Callable[[Datum], str],
    n_rows: int,
) -> alt.LayerChart:
    """Draw cells in the colours of their speed-ups, with lines between them, and their labels.

    Args:
        rows: the cells.
        base: their places.
        lines: between them.
        about: what the map shows, for screen readers.
        where: names a cell there.
        n_rows: of cells.
    """
    cells = base.mark_rect(cornerRadius=3).encode(color=look.speedup_colour(rows))
    labels = base.mark_text(fontWeight="bold", color=look.INK).encode(text="label:N")
    speed = itemgetter("speedup")
    ends = {"the highest": max(rows, key=speed), "the lowest": min(rows, key=speed)}
    extremes = ", ".join(f"{name} is {row['gain']} {where(row)}" for name, row in ends.items())
    return look.dress(
        *(cells, *lines, labels), description=f"{about}: {extremes}.", height=max(90, _HEIGHT * n_rows)
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


def crossover_rows(results: ResultSet) -> list[Datum]:
    """Return what ``crossover`` draws, one row per known cell; none for a bench that is no crossover.

    Columns: users, depth, source, verdict, gamma, speedup, speedup_lo, speedup_hi, gain, label.
    ``ends_right`` and ``ends_below`` are whether the policy changes between drafting and not at that border
    of the cell.
    """
    crossover_map = read_crossover(results)
    if crossover_map is None:
        return []
    more_users, deeper = dict(pairwise(crossover_map.users)), dict(pairwise(crossover_map.depths))
    return [
        {
            "users": cell.users,
            "depth": cell.depth,
            "source": cell.source.value,
            "verdict": cell.verdict.value,
            "gamma": best.draft,
            **look.flatten("speedup", best.speedup),
            "gain": units.format_factor(best.speedup.value),
            "label": describe_cell(cell),
            "ends_right": _changes(crossover_map, cell, cell.users, deeper.get(cell.depth)),
            "ends_below": _changes(crossover_map, cell, more_users.get(cell.users), cell.depth),
        }
        for cell in crossover_map.cells
        if (best := cell.best) is not None
    ]


def _changes(crossover_map: CrossoverMap, cell: CrossoverCell, users: int | None, depth: int | None) -> bool:
    """Whether the policy changes between drafting and not from a cell to its neighbour, if there is one."""
    if users is None or depth is None:
        return False
    other = crossover_map.by_point[TrafficPoint(users, depth)]
    return other.best is not None and (other.choice is None) != (cell.choice is None)


def crossover(results: ResultSet) -> alt.LayerChart | None:
    """Return the speed-up of the best γ over users × depth; None for a bench that is no crossover."""
    rows = crossover_rows(results)
    return draw_crossover(rows) if rows else None


def draw_crossover(rows: list[Datum]) -> alt.LayerChart:
    """Draw the rows of ``crossover_rows``."""
    band, axis = (
        alt.Scale(type="band", padding=0),
        alt.Axis(format=",", labelAngle=0, domain=False, ticks=False),
    )

    def place(across: float, down: float) -> dict[str, Any]:
        """Return the axes of a layer that stands at a share of the width and the height of each cell."""
        return {
            "x": alt.X(
                "depth:O",
                title="depth: tokens before each prompt",
                scale=band,
                axis=axis,
                bandPosition=across,
            ),
            "y": alt.Y("users:O", title="users", scale=band, axis=axis, bandPosition=down),
        }

    base = alt.Chart(look.values(rows)).encode(tooltip=look.tooltip(run_rows.CrossoverCellRow))
    line: dict[str, Any] = {"color": look.VERMILLION, "strokeWidth": 3}
    return _draw_map(
        rows,
        base.encode(**place(0.5, 0.5)),
        base.transform_filter(alt.datum.ends_right)
        .mark_rule(**line)
        .encode(**place(1, 0), y2=alt.Y2("users:O", bandPosition=1)),
        base.transform_filter(alt.datum.ends_below)
        .mark_rule(**line)
        .encode(**place(0, 1), x2=alt.X2("depth:O", bandPosition=1)),
        about="Speed-up of the best draft size over the target alone by users and depth",
        where=lambda row: f"for {units.counted(row['users'], 'user')} at depth {row['depth']:,}",
        n_rows=len(distinct(rows, "users")),
    )
