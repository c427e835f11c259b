"""Where drafting pays over users and depth: a heat map of speed-ups with the break-even line."""

from __future__ import annotations

import json

import altair as alt

from ggufspec import units
from ggufspec.analysis import CrossoverCell, CrossoverMap, read_crossover
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum, distinct
from ggufspec.report.rows.charts import CrossoverCellRow
from ggufspec.report.text.crossovers import describe_cell
from ggufspec.results import ResultSet

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
    base = alt.Chart(look.values(rows)).encode(
        tooltip=look.tooltip(CrossoverCellRow),
    )
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
