"""The rows of charts: what a mark says when it is pointed at, and the table of data below the chart.

A chart's data are mappings. ``tps`` is beside ``tps_lo`` and ``tps_hi``, the ends of its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ggufspec import units
from ggufspec.domain import Estimate
from ggufspec.report.columns import Row, column
from ggufspec.report.rows.benches import two_digits, with_commas
from ggufspec.report.text import figures


def _interval(name: str) -> Callable[[Mapping[str, Any]], Estimate | None]:
    """Return the function that reads an estimate from its three values."""

    def read(row: Mapping[str, Any]) -> Estimate | None:
        if row[name] is None:
            return None
        return Estimate(value=row[name], lo=row[f"{name}_lo"], hi=row[f"{name}_hi"])

    return read


class CrossoverCellRow(Row):
    """A cell of a crossover."""

    users: int
    depth: int = column(show=with_commas)
    gamma: int = column("γ")
    speedup: Estimate = column("speed-up", units.format_factor, of=_interval("speedup"))
    source: str = column("figures")
    verdict: str = column("drafting")


class SpeedRow(Row):
    """The speed of an arm, measured or forecast."""

    series: str = column("arm")
    label: str = column("arm")
    kind: str
    gamma: int | None = column("γ")
    tps: Estimate = column("tokens/s", units.format_rate, of=_interval("tps"))
    gain: str | None = column("speed-up")


class HeatRow(Row):
    """A cell of the map of speed-ups."""

    down: str = column("row")
    across: str = column("column")
    gamma: int | None = column("γ")
    speedup: Estimate = column("speed-up", units.format_factor, of=_interval("speedup"))


class AcceptedAtRow(Row):
    """A position in the drafts of an arm."""

    series: str = column("arm")
    gamma: int = column("γ")
    position: int
    share: float | None = column("accepted", units.format_percent)
    measure: str = column("share")


class SpentRow(Row):
    """A part of the rounds of an arm."""

    label: str = column("arm")
    part: str = column("spent on")
    ms: float = column("ms per round", figures.three_digits)
    share: float = column(show=units.format_percent)


class MemorySpeedRow(Row):
    """The memory and the speed of an arm."""

    label: str = column("arm")
    memory_mib: float = column("MiB", "{:.1f}".format)
    tps: Estimate = column("tokens/s", units.format_rate, of=_interval("tps"))
    gain: str | None = column("speed-up")
    front: bool = column("on the front")


class DriftRow(Row):
    """A run in the course of a bench."""

    minutes: float = column("minute", two_digits)
    label: str = column("arm")
    prompt: str
    kind: str
    tps: float = column("tokens/s", units.format_rate)
    relative: float = column("of the median", units.format_percent)
    others_cores: float | None = column("cores used by others", two_digits)
