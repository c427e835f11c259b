"""A board as one HTML file that needs no network: all configurations in a table that sorts and filters.

Everything in bundles may come from anybody, so it is escaped, as in the report. Addresses are relative paths
with every other character quoted, so that no name of a bundle becomes a scheme.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ggufspec import units
from ggufspec.analysis import Board, BoardRow, BundleState, PublishedBundle
from ggufspec.domain import Estimate
from ggufspec.report.html import TEMPLATES, standalone
from ggufspec.report.html.tables import Field, Table, number, rate, table
from ggufspec.report.text import figures

_FIELDS = (
    Field(name="pair", head="pair"),
    Field(name="machine", head="machine"),
    Field(name="build", head="llama.cpp"),
    number("gamma", "γ"),
    rate("tps", interval=False),
    number("speedup", "speed-up", units.format_factor, interval=True),
    Field(name="verdict", head="verdict"),
    Field(name="bench", head="report", link="address"),
    Field(name="state", head="bundle is"),
    rate("target_tps", "target alone, tokens/s", interval=False),
    number("accept_rate", "accepted", units.format_percent),
    *(number("layers", "GPU layers"), number("threads", "threads"), number("users", "users")),
    number("p_min", "p-min", units.format_number),
    Field(name="engine", head="engine"),
    number("runs", "runs"),
)
_FILTERED = ("pair", "machine", "llama.cpp", "γ", "verdict", "engine", "bundle is")
_BUNDLES = (
    Field(name="name", head="bundle", link="address"),
    Field(name="state", head="state"),
    Field(name="finding", head="what does not follow"),
    number("rows", "configurations"),
    Field(name="made_at", head="published"),
    Field(name="version", head="ggufspec"),
    Field(name="sha256", head="SHA-256"),
)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice of values of a column: its heading and place, and its distinct values."""

    head: str
    column: int
    values: tuple[str, ...]


def html(board: Board, folder: Path, *, made_at: datetime | None = None) -> str:
    """Return the page of a board.

    Args:
        board: what it shows.
        folder: where the page will be, as links to reports are relative to it.
        made_at: the time that the page names; None for now.
    """
    addresses = {bundle.sha256: _address(bundle.report, folder) for bundle in board.bundles}
    rows = [{**_values(row), "address": addresses[row.sha256]} for row in board.rows]
    configurations = table("All configurations", rows, _FIELDS)
    bundles = [_describe(bundle, addresses[bundle.sha256]) for bundle in board.bundles]
    style, behaviour, filtering = map(standalone.read_source, ("style.css", "behaviour.js", "board.js"))
    return TEMPLATES.get_template("board.html").render(
        sentences=list(sentences(board)),
        configurations=configurations,
        filters=list(_filters(configurations)),
        bundles=table("Bundles", bundles, _BUNDLES),
        style=style,
        behaviour=behaviour,
        filtering=filtering,
        policy=standalone.write_policy(style, (behaviour, filtering)),
        version=metadata.version("ggufspec"),
        made_at=f"{made_at or datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def sentences(board: Board) -> Iterator[str]:
    """Yield the best result, how much the board shows, and whether that was verified, as sentences."""
    best = board.best
    if best is None:
        yield "No configuration is significantly faster than its target alone."
    else:
        ratio = figures.factor(_speedup(best))
        size = "" if best.gamma is None else f" at γ = {best.gamma}"
        yield f"The largest speed-up is {ratio}: {best.pair}{size} on {best.machine}."
    rows = board.rows
    pairs, machines = len({row.pair for row in rows}), len({row.machine for row in rows})
    yield (
        f"{units.counted(len(rows), 'configuration')} of {units.counted(pairs, 'pair')} on "
        f"{units.counted(machines, 'machine')}, from {units.counted(len(board.bundles), 'bundle')}."
    )
    refuted = sum(bundle.state is BundleState.REFUTED for bundle in board.bundles)
    if refuted:
        yield f"{units.counted(refuted, 'bundle')} must not be relied on: its figures do not follow."
    if any(bundle.state is BundleState.UNCHECKED for bundle in board.bundles):
        yield "Bundles were not verified: `ggufspec board --verify` recomputes their figures from raw logs."


def _speedup(row: BoardRow) -> Estimate | None:
    if row.speedup is None:
        return None
    return Estimate(value=row.speedup, lo=row.speedup_lo, hi=row.speedup_hi)


def _values(row: BoardRow) -> dict[str, Any]:
    return {**asdict(row), "state": row.state.value}


def _describe(bundle: PublishedBundle, address: str) -> Mapping[str, Any]:
    more = len(bundle.findings) - 1
    return {
        **{name: getattr(bundle, name) for name in ("name", "version", "sha256")},
        "state": bundle.state.value,
        "finding": "".join(bundle.findings[:1]) + (f" (and {more} more)" if more > 0 else ""),
        "rows": len(bundle.rows),
        "made_at": bundle.made_at[:10],
        "address": address,
    }


def _filters(shown: Table) -> Iterator[Filter]:
    """Yield a filter for each column that has several values; numbers are in their order."""
    for place, column in enumerate(shown.columns):
        cells = {row[place].text: row[place].key for row in shown.rows if row[place].text}
        if column.head in _FILTERED and len(cells) > 1:
            values = sorted(cells, key=lambda text: _order(cells[text]))
            yield Filter(head=column.head, column=place, values=tuple(values))


def _order(key: object) -> tuple[float, str]:
    return (float(key), "") if isinstance(key, int | float) else (0.0, str(key))


def _address(report: Path, folder: Path) -> str:
    """Return the relative address of a file; ``./`` first, so that it has no scheme."""
    relative = Path(os.path.relpath(report.absolute(), folder.absolute())).as_posix()
    return f"./{quote(relative)}"


def notebook_rows(rows: Sequence[BoardRow]) -> list[dict[str, str]]:
    """Return the cells of a board for a notebook."""
    shown = table("", [_values(row) for row in rows], _FIELDS)
    heads = [column.head for column in shown.columns]
    return [dict(zip(heads, (cell.text for cell in row), strict=True)) for row in shown.rows]
