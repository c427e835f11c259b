"""DataFrame -> one of the FORMATS; values in, text or bytes out, nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from ggufspec import units
from ggufspec.errors import GgufspecError
from ggufspec.harmless import CONTROL, harmless, to_json

if TYPE_CHECKING:  # frames.py alone imports pandas at run time
    from pandas import DataFrame


from ggufspec.harmless import one_line

Text = Literal["md", "csv", "json", "jsonl", "sql"]
"""The formats that are text; all others are bytes."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What opens a formula in a spreadsheet (OWASP, "CSV Injection")."""


@overload
def render(frame: DataFrame, format: Text, *, title: str = ...) -> str: ...


@overload
def render(frame: DataFrame, format: str, *, title: str = ...) -> str | bytes: ...


def render(frame: DataFrame, format: str, *, title: str = "results") -> str | bytes:  # noqa: A002  # the field's word
    """Return a frame as text, or as bytes where the format is no text.

    Args:
        frame: any table; lists and mappings in its cells stay structured in json, jsonl and parquet.
        format: a key of FORMATS.
        title: the table's name where the format has one (sql).

    Raises:
        GgufspecError: parquet needs a library that is not installed.
    """
    return FORMATS[format](frame, title)


def _markdown(frame: DataFrame, _title: str) -> str:
    rows = [{name: _text(name, value) for name, value in row.items()} for row in records(frame)]
    columns = [name for name in frame.columns if any(row[name] for row in rows)] or list(frame.columns)
    return table(columns, rows) + "\n"


def _csv(frame: DataFrame, _title: str) -> str:
    return frame.map(_csv_cell).to_csv(index=False, lineterminator="\n")


def _json(frame: DataFrame, _title: str) -> str:
    return to_json(records(frame), indent=2) + "\n"


def _jsonl(frame: DataFrame, _title: str) -> str:
    return "".join(to_json(row) + "\n" for row in records(frame))


def _sql(frame: DataFrame, title: str) -> str:
    rows = records(frame)
    columns = ", ".join(f'"{name}" {_sql_type([row[name] for row in rows])}' for name in frame.columns)
    names = ", ".join(f'"{name}"' for name in frame.columns)
    inserts = (
        f'INSERT INTO "{title}" ({names}) VALUES ({", ".join(map(_sql_literal, row.values()))});\n'
        for row in rows
    )
    return f'CREATE TABLE IF NOT EXISTS "{title}" ({columns});\n' + "".join(inserts)


def _parquet(frame: DataFrame, _title: str) -> bytes:
    try:
        return frame.to_parquet(index=False)
    except ImportError as error:
        raise GgufspecError(
            "parquet is written by pyarrow, which is not installed", "pip install pyarrow"
        ) from error


FORMATS: Mapping[str, Callable[[DataFrame, str], str | bytes]] = {
    "md": _markdown,
    "csv": _csv,
    "json": _json,
    "jsonl": _jsonl,
    "sql": _sql,
    "parquet": _parquet,
}


def records(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain Python values, absent as None."""
    return [
        {name: _plain(value) for name, value in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False, name=None)
    ]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | list | dict | bool):
        return value
    if str(value) in {"<NA>", "nan"}:  # pandas' two ways to say absent
        return None
    return value.item() if hasattr(value, "item") else value


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


def _text(name: str, value: Any) -> str:
    """Return a cell for reading: rates in per cent, numbers with four digits."""
    value = _flat(value)
    if value is None:
        return ""
    if isinstance(value, float) and name.endswith("_rate"):
        return f"{value:.1%}"
    return units.format_number(value) if isinstance(value, float) else str(value)


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
    return CONTROL.sub(lambda match: f"' || char({ord(match[0])}) || '", quoted)


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
