"""Sortable tables of a page: what a column shows, and cells with their sort keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ggufspec import units
from ggufspec.domain import Estimate
from ggufspec.report.text.figures import meaningful_spread

Value = str | float | bool | None
Show = Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """The text of a cell, its sort key (None goes last), and the address that it leads to, if any."""

    text: str
    key: Value
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column: its heading, and whether it holds numbers, which are right-aligned."""

    head: str
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that can be sorted; ``caption`` is for screen readers."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Field:
    """How a column is shown: its name in the rows, its heading, and the format of its values."""

    name: str
    head: str
    show: Show = str
    number: bool = False
    interval: bool = False  # followed by <name>_lo and <name>_hi in brackets
    link: str | None = None  # the name of the address in the rows


def rate(name: str, head: str = "tokens/s", *, interval: bool = True) -> Field:
    """Return a field of tokens/s, by default with its interval."""
    return Field(name=name, head=head, show=units.format_rate, number=True, interval=interval)


def number(name: str, head: str, form: str | Show = "{:d}", *, interval: bool = False) -> Field:
    """Return a field of numbers, formatted by ``str.format`` or by a function."""
    show = form.format if isinstance(form, str) else form
    return Field(name=name, head=head, show=show, number=True, interval=interval)


def table(caption: str, rows: Sequence[Mapping[str, Any]], fields: Sequence[Field]) -> Table:
    """Return rows as a table; columns without any value are left out."""
    filled = [field for field in fields if any(row.get(field.name) not in {None, ""} for row in rows)]
    return Table(
        caption=caption,
        columns=tuple(Column(head=field.head, number=field.number) for field in filled),
        rows=tuple(tuple(_cell(row, field) for field in filled) for row in rows),
    )


def _cell(row: Mapping[str, Any], field: Field) -> TableCell:
    value = row.get(field.name)
    if value is None:
        return TableCell(text="", key=None)
    text = field.show(value)
    lo, hi = (row.get(f"{field.name}{end}") for end in ("_lo", "_hi"))
    if field.interval:
        text = meaningful_spread(Estimate(value=value, lo=lo, hi=hi), field.show)
    return TableCell(text=text, key=value, link=None if field.link is None else row.get(field.link))
