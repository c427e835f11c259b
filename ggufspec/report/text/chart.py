"""Tokens/s over γ as text: a line per arm, a bar for its interval, a dotted line for the target alone."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass

from ggufspec import units
from ggufspec.analysis import Arm
from ggufspec.domain import Role
from ggufspec.report.rows.runs import named_arms
from ggufspec.report.text.tables import is_plain
from ggufspec.results import ResultSet
from ggufspec.stats import Estimate

_NARROWEST, _WIDEST = 20, 100  # columns of the plot itself
_TICKS = 4
_BEYOND = 1.6  # times the highest rate, where intervals are cut


_ASCII = str.maketrans("●├┤─┊┴×γ", "o||-:+xn")
"""What is drawn -> the same for terminals that show ASCII alone."""


def curve(results: ResultSet, *, width: int | None = None, ascii_only: bool | None = None) -> str:
    """Return the curve of a bench as lines of text; an empty text if no arm drafts.

    Args:
        results: a bench.
        width: columns of a line; without it, those of the terminal.
        ascii_only: whether to use ASCII alone; without it, if the terminal and its encoding need that.
    """
    shown = [(arm, row) for arm, row in named_arms(results) if arm.rate is not None]
    if all(arm.role is Role.TARGET for arm, _ in shown):
        return ""
    names = [row["label"] for _, row in shown]
    labels = ["  ".join(filter(None, (row["rate"], row["gain"]))) for _, row in shown]
    columns = shutil.get_terminal_size().columns if width is None else width
    beside = max(map(len, names)) + max(map(len, labels)) + 4
    room = max(_NARROWEST, min(_WIDEST, columns - beside))
    rates = [arm.rate for arm, _ in shown if arm.rate]
    most = min(max(_ends(rate)[1] for rate in rates), _BEYOND * max(rate.value for rate in rates))
    scale = _Scale(most=most, room=room)
    left = max(map(len, names))
    lines = [
        f"{name:<{left}}  {_line(arm, scale)}  {label}".rstrip()
        for name, (arm, _), label in zip(names, shown, labels, strict=True)
    ]
    axis, numbers = _axis(scale)
    title = "tokens/s over γ (draft size) with 95 % intervals; ┊ is the target alone"
    page = "\n".join((title, "", *lines, f"{'':<{left}}  {axis}", f"{'':<{left}}  {numbers}".rstrip(), ""))
    return page.translate(_ASCII) if (is_plain() if ascii_only is None else ascii_only) else page


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """Tokens/s to columns: 0 at the left, ``most`` at the right."""

    most: float
    room: int

    def column(self, rate: float) -> int:
        return round(min(rate / self.most, 1) * (self.room - 1))


def _line(arm: Arm, scale: _Scale) -> str:
    cells = [" "] * scale.room
    alone = arm.baseline.rate if arm.baseline else None
    assert arm.rate is not None
    low, high = map(scale.column, _ends(arm.rate))
    if low < high:
        cells[low : high + 1] = [
            "├",
            *"─" * (high - low - 1),
            "┤" if _ends(arm.rate)[1] <= scale.most else ">",
        ]
    if alone is not None:
        cells[scale.column(alone.value)] = "┊"
    cells[scale.column(arm.rate.value)] = "●"
    return "".join(cells)


def _axis(scale: _Scale) -> tuple[str, str]:
    """Return the line below the plot and the numbers below that."""
    line, numbers = ["─"] * scale.room, [" "] * (scale.room + 8)
    rough = scale.most / _TICKS
    size = 10 ** math.floor(math.log10(rough))
    step = size * next(times for times in (1, 2, 5, 10) if times * size >= rough)
    for tick in range(int(scale.most / step) + 1):
        column, text = scale.column(tick * step), units.format_number(tick * step)
        start = max(0, column - len(text) // 2)
        line[column] = "┴"
        numbers[start : start + len(text)] = text
    return "".join(line), "".join(numbers).rstrip()


def _ends(rate: Estimate) -> tuple[float, float]:
    return (rate.value if rate.lo is None else rate.lo, rate.value if rate.hi is None else rate.hi)
