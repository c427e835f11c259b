"""A board as one HTML file that needs no network: all configurations in a table that sorts and filters.

Everything in bundles may come from anybody, so it is escaped, as in the report. Addresses are relative paths
with every other character quoted, so that no name of a bundle becomes a scheme.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

from ggufspec import units
from ggufspec.analysis import Board, BundleState
from ggufspec.report.columns import FilledTable, Row, TableLayout, column
from ggufspec.report.html import TEMPLATES, read_source, write_policy
from ggufspec.report.rows.benches import MANNER
from ggufspec.report.rows.listing import LinkedConfigurationRow
from ggufspec.report.text import figures


class BundleRow(Row):
    """A bundle of a board; see ``analysis.PublishedBundle``."""

    name: str = column("bundle", link="address")
    state: str
    finding: str = column("what does not follow", of=lambda bundle: _first_finding(bundle["findings"]))
    rows: int = column("configurations", of=lambda bundle: len(bundle["rows"]))
    made_at: str = column("published", of=lambda bundle: bundle["made_at"][:10])
    version: str = column("ggufspec")
    sha256: str = column("SHA-256")


CONFIGURATIONS = TableLayout(
    row=LinkedConfigurationRow,
    names=(
        *("models", "machine", "build", "draft", "gen_tps", "speedup", "verdict", "bench", "state"),
        *("target_tps", "accept_rate", "layers", "threads", "users", *MANNER, "engine", "runs"),
    ),
)
_BUNDLES = TableLayout(row=BundleRow, names=BundleRow.fields())
_FILTERED = ("models", "machine", "build", "draft", "verdict", "engine", "state")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A choice of values of a column: its heading and place, and its distinct values."""

    head: str
    column: int
    values: tuple[str, ...]


def html(board: Board, folder: Path) -> str:
    """Return the page of a board.

    Args:
        board: what it shows.
        folder: where the page will be, as links to reports are relative to it.
    """
    addresses = {bundle.sha256: _address(bundle.report, folder) for bundle in board.bundles}
    configurations = CONFIGURATIONS.fill({"row": row, "address": addresses[row.sha256]} for row in board.rows)
    bundles = _BUNDLES.fill({**vars(item), "address": addresses[item.sha256]} for item in board.bundles)
    style, behaviour, filtering = map(read_source, ("style.css", "behaviour.js", "board.js"))
    return TEMPLATES.get_template("board.html").render(
        sentences=list(sentences(board)),
        configurations=configurations,
        filters=list(_filters(configurations)),
        bundles=bundles,
        style=style,
        behaviour=behaviour,
        filtering=filtering,
        policy=write_policy(style, (behaviour, filtering)),
        version=metadata.version("ggufspec"),
        made_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def sentences(board: Board) -> Iterator[str]:
    """Yield the best result, how much the board shows, and whether that was verified, as sentences."""
    best = board.best
    if best is None:
        yield "No configuration is significantly faster than its target alone."
    else:
        ratio = figures.factor(best.recommended)
        size = "" if best.arm.draft_size is None else f" at γ = {best.arm.draft_size}"
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


def _first_finding(findings: Sequence[str]) -> str:
    more = len(findings) - 1
    return "".join(findings[:1]) + (f" (and {more} more)" if more > 0 else "")


def _filters(shown: FilledTable) -> Iterator[Filter]:
    """Yield a filter for each column that has several values; numbers are in their order."""
    for place, filtered in enumerate(shown.columns):
        cells = {row[place].text: row[place].key for row in shown.rows if row[place].text}
        if filtered.name in _FILTERED and len(cells) > 1:
            values = sorted(cells, key=lambda text: (isinstance(cells[text], str), cells[text]))
            yield Filter(head=filtered.head, column=place, values=tuple(values))


def _address(report: Path, folder: Path) -> str:
    """Return the relative address of a file; ``./`` first, so that it has no scheme."""
    relative = Path(os.path.relpath(report.absolute(), folder.absolute())).as_posix()
    return f"./{quote(relative)}"
