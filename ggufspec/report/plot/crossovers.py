"""Where drafting pays over users and depth: a heat map of speed-ups with the break-even line."""

from __future__ import annotations

import json

import altair as alt

from ggufspec import units
from ggufspec.analysis import CellSource, CrossoverCell, CrossoverMap, read_crossover
from ggufspec.domain import SpeedVerdict
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.report.plot import look
from ggufspec.report.plot.look import Datum, distinct
from ggufspec.report.rows.charts import CrossoverCellRow
from ggufspec.results import ResultSet

_SCALE = ("#e08345", "#f4f4f4", "#5fa3d9")  # light enough for dark numbers
_HEIGHT = 40  # of a row


def crossover_rows(results: ResultSet) -> list[Datum]:
    """Return what ``crossover`` draws, one row per known cell; none for a bench that is no crossover.

    Columns: users, depth, source, verdict, gamma, speedup, speedup_lo, speedup_hi, gain, label. ``across``
    and ``down`` count the cell's place from 0. ``ends_right`` and ``ends_below`` are whether the policy
    changes between drafting and not at that border of the cell.
    """
    found = read_crossover(results)
    if found is None:
        return []
    return [_row(found, cell) for cell in found.cells if cell.best is not None]


def crossover(results: ResultSet) -> alt.LayerChart | None:
    """Return the speed-up of the best γ over users × depth; None for a bench that is no crossover."""
    return draw_crossover(crossover_rows(results))


def draw_crossover(rows: list[Datum]) -> alt.LayerChart | None:
    """Draw the rows of ``crossover_rows``."""
    if not rows:
        return None
    far = max(1.05, *(max(row["speedup"], 1 / row["speedup"]) for row in rows))
    base = alt.Chart(look.values(rows)).encode(
        tooltip=look.tooltip(CrossoverCellRow),
    )
    cells = base.mark_rect(stroke="white", strokeWidth=3).encode(
        x=_across(rows, "across"),
        x2="across_end:Q",
        y=_down(rows, "down"),
        y2="down_end:Q",
        color=alt.Color(
            "speedup:Q", scale=alt.Scale(domain=[1 / far, 1, far], range=list(_SCALE)), legend=None
        ),
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
    top = max(rows, key=lambda row: row["speedup"])
    low = min(rows, key=lambda row: row["speedup"])
    extremes = ", ".join(
        f"{name} is {row['gain']} for {units.counted(row['users'], 'user')} at depth {row['depth']:,}"
        for name, row in (("the highest", top), ("the lowest", low))
    )
    return look.dress(
        *(cells, right, below, text),
        description=f"Speed-up of the best draft size over the target alone by users and depth: {extremes}.",
        height=max(90, _HEIGHT * len(distinct(rows, "users"))),
    )


def _row(found: CrossoverMap, cell: CrossoverCell) -> Datum:
    best = cell.best
    assert best is not None
    across, down = found.depths.index(cell.depth), found.users.index(cell.users)
    is_forecast, is_open = cell.source is CellSource.FORECAST, cell.verdict is SpeedVerdict.UNDECIDED
    signs = ("~" * is_forecast, "?" * is_open)
    gain = units.format_factor(best.speedup.value)
    return {
        "users": cell.users,
        "depth": cell.depth,
        "source": cell.source.value,
        "verdict": cell.verdict.value,
        "gamma": best.draft,
        "speedup": best.speedup.value,
        "speedup_lo": best.speedup.lo,
        "speedup_hi": best.speedup.hi,
        "gain": gain,
        "label": f"{signs[0]}γ {best.draft}, {gain}{signs[1]}",
        "across": across,
        "across_middle": across + 0.5,
        "across_end": across + 1,
        "down": down,
        "down_middle": down + 0.5,
        "down_end": down + 1,
        "ends_right": _changes(
            found, cell, found.users[down : down + 1], found.depths[across + 1 : across + 2]
        ),
        "ends_below": _changes(
            found, cell, found.users[down + 1 : down + 2], found.depths[across : across + 1]
        ),
    }


def _changes(
    found: CrossoverMap, cell: CrossoverCell, users: tuple[int, ...], depths: tuple[int, ...]
) -> bool:
    """Whether the policy of a neighbouring cell, if there is one, is another one than a cell's."""
    neighbours = [found.by_point[TrafficPoint(number, depth)] for number in users for depth in depths]
    return any(
        other.best is not None and (other.choice is None) != (cell.choice is None) for other in neighbours
    )


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


def _labels(rows: list[Datum], place: str, name: str) -> tuple[int, alt.Axis]:
    """Return the number of equally wide cells, and an axis with their values in the middle of each."""
    labels = {row[place]: f"{row[name]:,}" for row in rows}
    count = max(labels) + 1
    texts = json.dumps([labels.get(number, "") for number in range(count)])
    middles = [number + 0.5 for number in range(count)]
    shown = f"{texts}[floor(datum.value)]"
    return count, alt.Axis(values=middles, labelExpr=shown, grid=False, domain=False, ticks=False)
