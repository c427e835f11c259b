"""Make a DataFrame from rows of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import pandas as pd

from ggufspec.domain import MethodCounts

FORMER_SETTINGS = {
    "n_gpu_layers": "requested_ngl",
    "n_gpu_layers_draft": "requested_ngld",
    "draft_n_max": "draft",
    "draft_p_min": "p_min",
}
"""Former name -> present name of the settings of an arm."""


def frame(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], former: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Make a frame in which integers stay integers even if some are absent.

    Args:
        rows: values by column.
        columns: the columns, those under former names last.
        former: former name -> column, see ``with_former``.
    """
    present = [name for name in columns if name not in (former or {})]
    table = pd.DataFrame([dict(row) for row in rows], columns=present, dtype=object).convert_dtypes()
    return with_former(table, former or {})


def with_former(table: pd.DataFrame, former: Mapping[str, str]) -> pd.DataFrame:
    """Return a table that has some columns once more, under their former names, as its last ones.

    They stay for one version. ``attrs["former"]`` says which they are; people do not see them.
    """
    table = table.assign(**{old: table[new] for old, new in former.items()})
    table.attrs["former"] = dict(former)
    return table


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
    joined = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["machine"])
    joined.attrs["former"] = next((table.attrs.get("former", {}) for table in tables.values()), {})
    return joined


def read_parquet(file: BinaryIO) -> pd.DataFrame:
    """Return the table of a Parquet file.

    Raises:
        ValueError: it is not Parquet.
    """
    return pd.read_parquet(file)


def list_methods(by_method: Sequence[MethodCounts] | None) -> list[dict[str, Any]] | None:
    """Return what each method of a chain drafted as a cell of a table; None for a single method."""
    return [
        {"name": f"{counts.method} {counts.n_accepted}/{counts.n_drafted}", **counts._asdict()}
        for counts in by_method or ()
    ] or None


def attributes(value: object, names: Sequence[str]) -> dict[str, Any]:
    """Return those of the named attributes that the value has; enums as their text."""
    values = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {name: getattr(item, "value", item) for name, item in values.items()}
