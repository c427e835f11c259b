"""Tables in Markdown: every cell on one line, whatever a stranger called their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggufspec.harmless import one_line


def table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    """Return some columns of rows as a table, without the end of its last line."""
    return grid(columns, [[row[name] for name in columns] for row in rows])


def grid(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as a table, without the end of its last line; headings may repeat."""
    from tabulate import tabulate  # slow to import, and most commands print no table

    shown = [[_cell(text) for text in row] for row in cells]
    return tabulate(shown, headers=heads, tablefmt="github", disable_numparse=True)


def _cell(text: str) -> str:
    """Return a text that ends neither its cell nor its line."""
    return one_line(text).replace("|", "\\|")
