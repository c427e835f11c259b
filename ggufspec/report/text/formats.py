"""DataFrame -> one of the FORMATS; values in, text or bytes out, nothing is printed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ggufspec.errors import GgufspecError
from ggufspec.harmless import CONTROL, harmless, to_json
from ggufspec.report import schemas
from ggufspec.report.text import tables

if TYPE_CHECKING:  # only report/frames imports pandas at run time
    from pandas import DataFrame

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a formula begins in a spreadsheet (OWASP, "CSV Injection")."""


def render(
    frame: DataFrame,
    format: str,  # noqa: A002  # the field's word
    *,
    title: str = "results",
    origin: Mapping[str, Any] | None = None,
    schema: str | None = None,
) -> str | bytes:
    """Return a frame as text, or as bytes where the format is not text.

    Args:
        frame: any table; lists and mappings in its cells stay structured in json, jsonl and parquet.
        format: a key of FORMATS.
        title: the table's name where the format has one (sql).
        origin: where the rows come from; json and jsonl have it in each row, before the row's own columns.
        schema: the output whose schema the rows follow; json and jsonl name it in each row, first.

    Raises:
        GgufspecError: parquet needs a library that is not installed.
    """
    before = {**({"schema": schemas.schema_name(schema)} if schema else {}), **(origin or {})}
    return FORMATS[format](frame, title, before)


def for_people(frame: DataFrame, output: str) -> str:
    """Return a frame as a table for people, without empty columns.

    Args:
        frame: any table.
        output: ``md``, or ``table`` for the terminal.
    """
    from ggufspec.report.rows.benches import MANNER  # slow to import

    rows = [{name: _text(name, value) for name, value in row.items()} for row in records(frame)]
    names = [name for name in frame.columns if any(row[name] for row in rows)] or list(frame.columns)
    labels = (  # what tells the rows apart; each part of a table that is too wide has them
        *("file", "role", "draft_model", "method", "draft", *MANNER),
        *("prompt", "category", "repeat", "position", "round", "turn", "segment"),
    )
    cells = [[row[name] for name in names] for row in rows]
    return tables.grid(names, cells, output, labels=labels) + "\n"


def _csv(frame: DataFrame, *_: Any) -> str:
    # as objects: pandas 2 would make floats of whole numbers where one of them is missing
    return frame.astype(object).map(_csv_cell).to_csv(index=False, lineterminator="\n")


def _json(frame: DataFrame, _title: str, before: Mapping[str, Any]) -> str:
    return to_json([{**before, **row} for row in records(frame)], indent=2) + "\n"


def _jsonl(frame: DataFrame, _title: str, before: Mapping[str, Any]) -> str:
    return "".join(to_json({**before, **row}) + "\n" for row in records(frame))


def _sql(frame: DataFrame, title: str, _before: Mapping[str, Any]) -> str:
    rows = records(frame)
    columns = ", ".join(f'"{name}" {_sql_type([row[name] for row in rows])}' for name in frame.columns)
    names = ", ".join(f'"{name}"' for name in frame.columns)
    inserts = (
        f'INSERT INTO "{title}" ({names}) VALUES ({", ".join(map(_sql_literal, row.values()))});\n'
        for row in rows
    )
    return f'CREATE TABLE IF NOT EXISTS "{title}" ({columns});\n' + "".join(inserts)


def _parquet(frame: DataFrame, *_: Any) -> bytes:
    try:
        return frame.to_parquet(index=False)
    except ImportError as error:
        raise GgufspecError(
            "parquet is written by pyarrow, which is not installed", "pip install pyarrow"
        ) from error


FORMATS: Mapping[str, Callable[[DataFrame, str, Mapping[str, Any]], str | bytes]] = {
    tables.TERMINAL: lambda frame, *_: for_people(frame, tables.TERMINAL),
    "md": lambda frame, *_: for_people(frame, "md"),
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "sql": _sql,
    "parquet": _parquet,
}


def records(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain Python values, absent as None."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    # Parquet's lists are arrays
    return [
        {str(name): value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        for row in rows
    ]


def _flat(value: Any) -> Any:
    """Return a cell without structure: warnings become their names."""
    if isinstance(value, list):
        return "; ".join(str(item["name"]) if isinstance(item, dict) else str(item) for item in value)
    return value


def _csv_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula, without control characters.

    Numbers stay numbers; a text that begins as formulas do is marked as text by an apostrophe.
    """
    value = _flat(value)
    if not isinstance(value, str):
        return value
    return harmless(f"'{value}" if value.lstrip(" ").startswith(_FORMULAS) else value)


@cache
def _formats() -> Mapping[str, Callable[[Any], str]]:
    """Return how columns are shown, by their names; a name means the same in every table."""
    from ggufspec.report.columns import Row  # with numpy: every command imports this file for its formats
    from ggufspec.report.rows import benches, plans, runs

    return {
        name: column.show
        for room in (plans, runs, benches)
        for row in vars(room).values()
        if isinstance(row, type) and issubclass(row, Row)
        for column in row.columns.values()
        if column.show not in {None, benches.milliseconds}  # of seconds, as the name here says
        for name in column.types
    }


def _text(name: str, value: Any) -> str:
    """Return a cell for people."""
    from ggufspec.report.columns import show

    value = _flat(value)
    return "" if value is None else _formats().get(name, show)(value)


def _sql_type(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, bool}:
        return "INTEGER"
    return "REAL" if kinds and kinds <= {int, bool, float} else "TEXT"


def _sql_literal(value: Any) -> str:
    value = _flat(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    quoted = "'" + str(value).replace("'", "''") + "'"
    return re.sub(CONTROL, lambda match: f"' || char({ord(match[0])}) || '", quoted)
