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
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, get_args, get_origin

from msgspec import Struct, structs, to_builtins

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
            ``_lo`` and ``_hi`` the ends of its 95 % interval. A row type stands for all of its
            columns; a list of them, or one that may be absent, is only part of JSON objects.
        of: the path of the value in what the row is about, or a function from that to the value.
        show: from a number or another value to its text for people; None for the usual text of the type.
        help: what it means, for JSON Schemas.
        only_shown: whether only people see it: programs have the same in other columns.
        link: the path of the address that its cell leads to on a page.
    """

    name: str = ""
    head: str = ""
    type: Any = str
    of: str | Callable[[Any], Any] = ""
    show: Callable[[Any], str] | None = None
    help: str = ""
    only_shown: bool = False
    link: str = ""

    @cached_property
    def source(self) -> Callable[[Any], Any]:
        """The function from what a row is about to the value."""
        return self.of if callable(self.of) else _follow(self.of or self.name)

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

    def values(self, item: Any) -> Iterator[Any]:
        """Yield the values of these columns, without types of this package."""
        value = self.source(item)
        if self.is_estimate:
            yield from (getattr(value, attribute, None) for attribute in _ENDS.values())
        else:
            yield _plain(value)

    def to_json(self, item: Any) -> Any:
        """Return the value in a JSON object."""
        value = self.source(item)
        inner = next((hint for hint in (self.type, *get_args(self.type)) if _is_row(hint)), None)
        if value is None or inner is None:
            return to_builtins(value)
        return (
            [inner.to_json(part) for part in value] if get_origin(self.type) is list else inner.to_json(value)
        )

    def text(self, item: Any) -> str:
        """Return the text for people; empty where the value is absent."""
        return self.format(self.source(item))

    def cell(self, item: Any) -> TableCell:
        """Return the cell of a table for people."""
        value = self.source(item)
        # sorting by the text would put "10,680" before "9.5"
        key = _plain(value.value if isinstance(value, Estimate) else value)
        return TableCell(self.format(value), key, _follow(self.link)(item) if self.link else None)

    def format(self, value: Any) -> str:
        """Return the text of a value; of an estimate with its interval."""
        if value is None:
            return ""
        form = self.show or show
        return figures.spread(value, form) if isinstance(value, Estimate) else form(value)


def column(
    head: str = "",
    show: Callable[[Any], str] | None = None,
    *,
    of: str | Callable[[Any], Any] = "",
    help: str = "",  # noqa: A002  # the usual word
    link: str = "",
) -> Any:
    """Declare a field of a row type, see ``Column``; its heading and its path are its name by default."""
    return Column(head=head, show=show, of=of, help=help, link=link)


def shown(head: str, show: Callable[[Any], str] | None = None, *, of: str | Callable[[Any], Any]) -> Any:
    """Declare a field that only tables for people have."""
    return Column(head=head, show=show, of=of, only_shown=True)


class Row:
    """A row of a table: a subclass declares the columns, in order.

    Attributes:
        columns: name of a field -> its column; fields that are row types are replaced by their columns.
        for_programs: those columns that not only people see.
        description: what the row is, and the rows within it.
    """

    columns: ClassVar[Mapping[str, Column]] = {}
    description: ClassVar[str] = ""
    for_programs: ClassVar[Sequence[Column]] = ()
    _types: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Read the annotations, and what the fields are declared with."""
        hints = inspect.get_annotations(cls, eval_str=True)
        inner = (hint.description for hint in hints.values() if _is_row(hint))
        cls.description = "\n\n".join((inspect.getdoc(cls) or "", *inner))
        cls.columns = dict(cls.columns)
        for name, hint in hints.items():
            declared = replace(vars(cls).get(name) or Column(), name=name, type=hint)
            cls.columns |= {column.name: column for column in _expand(declared)}
        cls.for_programs = [column for column in cls.columns.values() if not column.only_shown]
        cls._types = {name: hint for column in cls.for_programs for name, hint in column.types.items()}

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Return the names of all columns, those that only people see included."""
        return tuple(cls.columns)

    @classmethod
    def types(cls) -> Mapping[str, Any]:
        """Return the columns for programs with the types of their values."""
        return cls._types

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the columns for programs."""
        return tuple(cls._types)

    @classmethod
    def record(cls, item: Any) -> dict[str, Any]:
        """Return the value of each column for programs."""
        values = (value for column in cls.for_programs for value in column.values(item))
        return dict(zip(cls._types, values, strict=True))

    @classmethod
    def to_json(cls, item: Any) -> dict[str, Any]:
        """Return one JSON object, in which estimates and the rows of a list are objects within it."""
        return {column.name: column.to_json(item) for column in cls.for_programs}


def _expand(declared: Column) -> Iterator[Column]:
    """Yield the columns of a field: those of its row type, or the field itself."""
    if not _is_row(declared.type):
        yield declared if declared.head or declared.only_shown else replace(declared, head=declared.name)
        return
    for inner in declared.type.columns.values():
        yield replace(inner, of=_then(declared.source, inner.source))


def _is_row(hint: Any) -> bool:
    return inspect.isclass(hint) and issubclass(hint, Row)


def _follow(path: str) -> Callable[[Any], Any]:
    """Return the function that follows names of attributes, or keys of a mapping, with dots between them."""
    names = path.split(".")

    def follow(item: Any) -> Any:
        for name in names:
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


def show(value: Any) -> str:
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


class TableCell(NamedTuple):
    """The text of a cell, what it is sorted by (None goes last), and the address that it leads to, if any."""

    text: str
    key: Any
    link: str | None = None


@dataclass(frozen=True, kw_only=True)
class FilledTable:
    """A table for people.

    Attributes:
        columns: those that tell something.
        rows: of each row, the cells of these columns.
        labels: names of the columns that tell rows apart.
        n_left_out: how many columns tell something and have no room.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    labels: Collection[str] = ()
    n_left_out: int = 0

    @classmethod
    def of_texts(cls, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> FilledTable:
        """Return a table whose columns are known only once it is filled."""
        columns = tuple(Column(name=head, head=head) for head in heads)
        return cls(columns=columns, rows=tuple(tuple(TableCell(text, text) for text in row) for row in rows))


@dataclass(frozen=True, kw_only=True)
class TableLayout:
    """Which columns of a row type a table for people has.

    Attributes:
        row: the row type.
        names: its fields, in order. A column without any text, or with the status ok alone, is left out.
        always: those that stay, even if they are empty.
        if_varied: those that are left out where all rows have the same text; no text is none.
        blank_is_default: those of them where no text is a setting's default, which differs from another
            setting of a row that says the same in ``kind``.
        kind: the column that tells rows of different kinds apart, which have different settings.
        first_left_out: those that are left out first where there are more than ten columns; without any, a
            table has all of its columns.
        labels: those that are repeated where columns do not fit a terminal, with texts before them that tell
            the rows apart.
    """

    row: type[Row]
    names: tuple[str, ...]
    always: Collection[str] = ()
    if_varied: Collection[str] = ()
    blank_is_default: Collection[str] = ()
    kind: str = ""
    first_left_out: Sequence[str] = ()
    labels: Collection[str] = ()

    def without(self, *names: str) -> TableLayout:
        """Return the layout without some columns, which then has all of the others."""
        return replace(self, names=tuple(name for name in self.names if name not in names), first_left_out=())

    def fill(self, items: Iterable[Any], compared: Iterable[Any] | None = None) -> FilledTable:
        """Return the table of some items, one in each row.

        Args:
            items: what the rows are about.
            compared: those of them between which settings are to vary; by default all.
        """
        items = list(items)
        compared = items if compared is None else list(compared)
        telling = [
            column
            for column in (self.row.columns[name] for name in self.names)
            if column.name in self.always or self._tells(column, items, compared)
        ]
        n_left_out = max(0, len(telling) - MOST) if self.first_left_out else 0
        names = {column.name for column in telling}
        left_out = [name for name in self.first_left_out if name in names][:n_left_out]
        columns = [column for column in telling if column.name not in left_out]
        columns = columns[: len(telling) - n_left_out]
        return FilledTable(
            columns=tuple(columns),
            rows=tuple(tuple(column.cell(item) for column in columns) for item in items),
            labels=self.labels,
            n_left_out=n_left_out,
        )

    def _tells(self, column: Column, items: Iterable[Any], compared: Iterable[Any]) -> bool:
        texts = {column.text(item) for item in items}
        if texts <= {"", Status.OK.value}:
            return False
        return column.name not in self.if_varied or self._varies(column, list(compared))

    def _varies(self, column: Column, items: Sequence[Any]) -> bool:
        if len({column.text(item) for item in items} - {""}) > 1:
            return True
        if column.name not in self.blank_is_default:
            return False
        kind = self.row.columns[self.kind]
        pairs = {(kind.text(item), column.text(item)) for item in items}
        return len(pairs) > len({which for which, _ in pairs})
