"""Make a DataFrame from rows of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pandas as pd

from ggufspec.domain import MethodCounts
from ggufspec.report.schemas.rows import MethodAcceptance


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a frame in which integers stay integers even if some are absent.

    Args:
        rows: values by column.
        columns: the columns, in this order.
    """
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns), dtype=object).convert_dtypes()


def join_machines(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of several machines as one, with the machine as the first column.

    Args:
        tables: machine -> its rows; all have the same columns.
    """
    parts = []
    for machine, table in tables.items():
        part = table.copy()
        part.insert(0, "machine", pd.Series([machine] * len(part), index=part.index, dtype="string"))
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["machine"])


def read_parquet(file: BinaryIO) -> pd.DataFrame:
    """Return the table of a Parquet file.

    Raises:
        ValueError: it is not Parquet.
    """
    return pd.read_parquet(file)


def list_methods(by_method: Sequence[MethodCounts] | None) -> list[MethodAcceptance] | None:
    """Return what each method of a chain drafted as a cell of a table; None for a single method."""
    return [
        MethodAcceptance(name=f"{counts.method} {counts.n_accepted}/{counts.n_drafted}", **counts._asdict())
        for counts in by_method or ()
    ] or None


def attributes(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that the value has; enums as their text."""
    values = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: getattr(item, "value", item) for name, item in values.items()}
