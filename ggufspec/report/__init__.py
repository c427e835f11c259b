"""DataFrame -> one of the FORMATS; values in, text or bytes out, nothing is printed here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from tabulate import tabulate

from ggufspec.errors import GgufspecError

if TYPE_CHECKING:  # frames.py alone imports pandas at run time
    from pandas import DataFrame


Text = Literal["md", "csv", "json", "jsonl", "sql"]
"""The formats that are text; all others are bytes."""


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
    said = [name for name in frame.columns if any(row[name] for row in rows)] or list(frame.columns)
    cells = [[row[name] for name in said] for row in rows]
    return tabulate(cells, headers=said, tablefmt="github", disable_numparse=True) + "\n"


def _csv(frame: DataFrame, _title: str) -> str:
    return frame.map(_flat).to_csv(index=False, lineterminator="\n")


def _json(frame: DataFrame, _title: str) -> str:
    return json.dumps(records(frame), indent=2, ensure_ascii=False) + "\n"


def _jsonl(frame: DataFrame, _title: str) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in records(frame))


def _sql(frame: DataFrame, title: str) -> str:
    columns = ", ".join(f'"{name}" {_sql_type(frame, name)}' for name in frame.columns)
    names = ", ".join(f'"{name}"' for name in frame.columns)
    inserts = (
        f'INSERT INTO "{title}" ({names}) VALUES ({", ".join(map(_sql_literal, row.values()))});\n'
        for row in records(frame)
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


def _text(name: str, value: Any) -> str:
    """Return a cell for reading: rates in per cent, numbers with four digits, one line."""
    value = _flat(value)
    if value is None:
        return ""
    if isinstance(value, float) and name.endswith("_rate"):
        return f"{value:.1%}"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|").replace("\n", " ")


def _sql_type(frame: DataFrame, name: str) -> str:
    kinds = {type(row[name]) for row in records(frame) if row[name] is not None}
    if kinds and kinds <= {int, bool}:
        return "INTEGER"
    return "REAL" if kinds and kinds <= {int, bool, float} else "TEXT"


def _sql_literal(value: Any) -> str:
    value = _flat(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"
