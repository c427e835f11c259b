"""Tokens/s over γ as text: a line per arm, a bar for its interval, a dotted line for the target alone."""

from __future__ import annotations

import math
import shutil

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

    def column(rate: float) -> int:
        """Return where a rate stands: 0 at the left, ``most`` at the right."""
        return round(min(rate / most, 1) * (room - 1))

    def line(arm: Arm) -> str:
        cells = [" "] * room
        assert arm.rate is not None
        low, high = _ends(arm.rate)
        first, last = column(low), column(high)
        if first < last:
            cells[first : last + 1] = ["├", *"─" * (last - first - 1), "┤" if high <= most else ">"]
        if arm.baseline and arm.baseline.rate:
            cells[column(arm.baseline.rate.value)] = "┊"
        cells[column(arm.rate.value)] = "●"
        return "".join(cells)

    left = max(map(len, names))
    lines = [
        f"{name:<{left}}  {line(arm)}  {label}".rstrip()
        for name, (arm, _), label in zip(names, shown, labels, strict=True)
    ]
    axis, numbers = ["─"] * room, [" "] * (room + 8)
    size = 10 ** math.floor(math.log10(most / _TICKS))
    step = size * next(times for times in (1, 2, 5, 10) if times * size >= most / _TICKS)
    for tick in range(int(most / step) + 1):
        at, text = column(tick * step), units.format_number(tick * step)
        start = max(0, at - len(text) // 2)
        axis[at] = "┴"
        numbers[start : start + len(text)] = text
    below = [f"{'':<{left}}  {''.join(cells)}".rstrip() for cells in (axis, numbers)]
    title = "tokens/s over γ (draft size) with 95 % intervals; ┊ is the target alone"
    page = "\n".join((title, "", *lines, *below, ""))
    return page.translate(_ASCII) if (is_plain() if ascii_only is None else ascii_only) else page


def _ends(rate: Estimate) -> tuple[float, float]:
    return (rate.value if rate.lo is None else rate.lo, rate.value if rate.hi is None else rate.hi)
