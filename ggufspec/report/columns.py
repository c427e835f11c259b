"""A column is declared once: its name, where its value comes from, its heading, its format and its help.

A row type lists columns. Data frames, JSON Schemas, and tables for terminals, Markdown and HTML follow:

    class PlanRow(Row):
        requested_ngl: int = column("target layers on the GPU", of="target.gpu_layers")
        fits: bool | None = column()

``requested_ngl`` is ``item.target.gpu_layers`` of what the row is about, ``fits`` is ``item.fits``. None
anywhere on the way gives None: what was not measured or does not apply. Fractions are fractions, units are in
the names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, get_args

from msgspec import Struct, structs

from ggufspec import units
from ggufspec.domain import Estimate, Status
from ggufspec.report.text import figures

MOST = 10
"""Columns of a table for people."""

_ENDS = {"": "value", "_lo": "lo", "_hi": "hi"}
"""What is added to the name of an estimate's column -> what of the estimate is there."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A field of a row type.

    Attributes:
        name: in data frames and JSON.
        head: above it in tables for people.
        type: of its values. An ``Estimate`` is three columns of a frame: its value, and under its name with
            ``_lo`` and ``_hi`` the ends of its 95 % interval. A row type stands for all of its columns.
        source: from what a row is about to the value.
        show: from a number or another value to its text for people; None for the usual text of the type.
        help: what it means, for JSON Schemas.
        only_shown: whether only people see it: programs have the same in other columns.
    """

    name: str = ""
    head: str = ""
    type: Any = str
    source: Callable[[Any], Any] = lambda item: item
    show: Callable[[Any], str] | None = None
    help: str = ""
    only_shown: bool = False

    @property
    def is_estimate(self) -> bool:
        """Whether it has an interval."""
        return Estimate in (self.type, *get_args(self.type))

    @property
    def is_number(self) -> bool:
        """Whether it is aligned to the right, and sorted by its value."""
        return bool({int, float, Estimate} & {self.type, *get_args(self.type)})

    @property
    def types(self) -> dict[str, Any]:
        """The columns that it is in a data frame, with the types of their values."""
        return (
            {f"{self.name}{end}": float | None for end in _ENDS}
            if self.is_estimate
            else {self.name: self.type}
        )

    def cells(self, item: Any) -> Iterator[Any]:
        """Yield the values of these columns, without types of this package."""
        value = self.source(item)
        if self.is_estimate:
            yield from (getattr(value, attribute, None) for attribute in _ENDS.values())
        else:
            yield _plain(value)

    def text(self, item: Any) -> str:
        """Return the text for people; empty where the value is absent."""
        return self.format(self.source(item))

    def format(self, value: Any) -> str:
        """Return the text of a value; of an estimate with its interval."""
        if value is None:
            return ""
        show = self.show or _show
        return figures.meaningful_spread(value, show) if isinstance(value, Estimate) else show(value)


def column(
    head: str = "",
    show: Callable[[Any], str] | None = None,
    *,
    of: str | Callable[[Any], Any] | None = None,
    help: str = "",  # noqa: A002  # the usual word
) -> Any:
    """Declare a field of a row type, see ``Column``.

    Args:
        head: the heading; by default the name.
        show: the format.
        of: the value's path in what the row is about, or a function of that; by default, the name.
        help: what it means.
    """
    return _Declared(head=head, show=show, of=of, help=help)


def shown(
    head: str, show: Callable[[Any], str] | None = None, *, of: str | Callable[[Any], Any] | None = None
) -> Any:
    """Declare a field that only tables for people have."""
    return _Declared(head=head, show=show, of=of, only_shown=True)


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """What a field of a row type is declared with."""

    head: str = ""
    show: Callable[[Any], str] | None = None
    of: str | Callable[[Any], Any] | None = None
    help: str = ""
    only_shown: bool = False


class Row:
    """A row of a table: a subclass declares the columns, in order.

    Attributes:
        columns: name of a field -> its column; fields that are row types are replaced by their columns.
        description: what the row is, and the rows within it.
    """

    columns: ClassVar[Mapping[str, Column]] = {}
    description: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Read the annotations and what the fields are declared with."""
        hints = inspect.get_annotations(cls, eval_str=True)
        own = (column for name, hint in hints.items() for column in _columns(name, hint, vars(cls).get(name)))
        inner = (hint.description for hint in hints.values() if _is_row(hint))
        cls.description = "\n\n".join((inspect.getdoc(cls) or "", *inner))
        cls.columns = {**cls.columns, **{column.name: column for column in own}}

    @classmethod
    def types(cls) -> dict[str, Any]:
        """Return the columns for programs with the types of their values."""
        return {name: hint for column in cls._for_programs() for name, hint in column.types.items()}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the columns for programs."""
        return tuple(cls.types())

    @classmethod
    def cells(cls, item: Any) -> dict[str, Any]:
        """Return the value of each column for programs."""
        values = (value for column in cls._for_programs() for value in column.cells(item))
        return dict(zip(cls.names(), values, strict=True))

    @classmethod
    def _for_programs(cls) -> list[Column]:
        return [column for column in cls.columns.values() if not column.only_shown]


def _columns(name: str, hint: Any, declared: _Declared | None) -> Iterator[Column]:
    """Yield the columns of a field."""
    declared = declared or _Declared()
    source = declared.of if callable(declared.of) else _follow((declared.of or name).split("."))
    if not _is_row(hint):
        yield Column(
            name=name,
            head=declared.head if declared.head or declared.only_shown else name,
            type=hint,
            source=source,
            show=declared.show,
            help=declared.help,
            only_shown=declared.only_shown,
        )
        return
    for inner in hint.columns.values():
        yield replace(inner, source=_then(source, inner.source))


def _is_row(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, Row)


def _follow(path: Sequence[str]) -> Callable[[Any], Any]:
    """Return the function that follows names of attributes, or keys of a mapping."""

    def follow(item: Any) -> Any:
        for name in path:
            if item is None:
                return None
            item = item.get(name) if isinstance(item, Mapping) else getattr(item, name)
        return item

    return follow


def _then(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def both(item: Any) -> Any:
        value = first(item)
        return None if value is None else second(value)

    return both


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [structs.asdict(item) if isinstance(item, Struct) else item for item in value]
    return value.value if isinstance(value, Enum) else value


def _show(value: Any) -> str:
    """Return the usual text of a value."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return units.format_number(value)
        case int():
            return units.format_count(value)
        case list():
            return "; ".join(str(getattr(item, "name", item)) for item in value)
        case Enum():
            return str(value.value)
    return str(value)


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """Which columns of a row type a table for people has.

    Attributes:
        row: the row type.
        names: its fields, in order. A column without any text, or with the status ok alone, is left out.
        always: those that stay, even if they are empty.
        if_varied: those that are left out where all rows have the same text.
        first_left_out: those that are left out first where there are more than ten columns.
        labels: those that are repeated where columns do not fit a terminal, with texts before them that tell
            the rows apart.
    """

    row: type[Row]
    names: tuple[str, ...]
    always: Collection[str] = ()
    if_varied: Collection[str] = ()
    first_left_out: Sequence[str] = ()
    labels: Collection[str] = ()

    def fill(self, items: Iterable[Any]) -> FilledTable:
        """Return the table of some items, one in each row."""
        items = list(items)
        columns = [self.row.columns[name] for name in self.names]
        texts = {column.name: [column.text(item) for item in items] for column in columns}
        shown = [
            column
            for column in columns
            if column.name in self.always or self._tells(column, texts[column.name])
        ]
        left_out = [name for name in self.first_left_out if any(column.name == name for column in shown)]
        left_out = left_out[: max(0, len(shown) - MOST)] if self.first_left_out else []
        kept = [column for column in shown if column.name not in left_out]
        kept = kept[:MOST] if self.first_left_out else kept
        return FilledTable(
            layout=self,
            items=items,
            columns=tuple(kept),
            texts=tuple(zip(*(texts[column.name] for column in kept), strict=True)) if kept else (),
            n_left_out=len(shown) - len(kept),
        )

    def _tells(self, column: Column, texts: Sequence[str]) -> bool:
        if all(text in {"", Status.OK.value} for text in texts):
            return False
        return column.name not in self.if_varied or len({*texts} - {""}) > 1


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """A table for people: its columns, and the text of each cell, row by row."""

    layout: TableLayout
    items: Sequence[Any]
    columns: tuple[Column, ...]
    texts: tuple[tuple[str, ...], ...]
    n_left_out: int = 0

    @property
    def heads(self) -> tuple[str, ...]:
        """The headings."""
        return tuple(column.head for column in self.columns)
