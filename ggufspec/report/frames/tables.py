"""Make a DataFrame from rows of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pandas as pd


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Make a frame in which integers stay integers even if some are absent."""
    return pd.DataFrame([dict(row) for row in rows], columns=list(columns), dtype=object).convert_dtypes()


def read_parquet(file: BinaryIO) -> pd.DataFrame:
    """Return the table of a Parquet file.

    Raises:
        ValueError: it is not Parquet.
    """
    return pd.read_parquet(file)


def attributes(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that the value has; enums as their text."""
    values = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: getattr(item, "value", item) for name, item in values.items()}
