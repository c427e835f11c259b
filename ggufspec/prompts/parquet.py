"""Rows of Parquet files, in the formats that ``jsonl`` knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggufspec import userfiles
from ggufspec.errors import GgufspecError
from ggufspec.prompts.jsonl import FIELDS, SuiteRow

_AT_ONCE = 256  # rows


def read_rows(path: Path) -> Iterator[SuiteRow]:
    """Yield the rows of a file; columns that no suite has are not read.

    Raises:
        GgufspecError: pyarrow is not installed, or the file cannot be read.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise GgufspecError(
            f"{path} is Parquet, which pyarrow reads, and that is not installed",
            "pip install 'ggufspec[parquet]'",
        ) from error
    try:
        userfiles.check_regular(path)
        with parquet.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in FIELDS]
            number = 0
            for batch in file.iter_batches(batch_size=_AT_ONCE, columns=columns):
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    number += 1
                    yield SuiteRow(f"{path}, row {number}", number, row)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise GgufspecError(f"cannot read {path} as Parquet: {reason}", "download it again") from error
