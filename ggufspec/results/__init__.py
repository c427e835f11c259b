"""The results of benches: a frozen ResultSet, and a store that loses no finished run in a crash."""

from __future__ import annotations

from ggufspec.results.records import decode_hook
from ggufspec.results.resultset import SCHEMA_VERSION, Meta, ResultSet, cell, finished, schema
from ggufspec.results.runs import CellKey, Runs
from ggufspec.results.store import (
    LATEST,
    amend,
    append,
    close,
    confirm,
    create,
    delete,
    find_bench,
    ids,
    judge,
    load,
    reopen,
    write_bench,
)
from ggufspec.results.writer import Lock, disk, read_object, write_object

__all__ = [
    "LATEST",
    "SCHEMA_VERSION",
    "CellKey",
    "Lock",
    "Meta",
    "ResultSet",
    "Runs",
    "amend",
    "append",
    "cell",
    "close",
    "confirm",
    "create",
    "decode_hook",
    "delete",
    "disk",
    "find_bench",
    "finished",
    "ids",
    "judge",
    "load",
    "read_object",
    "reopen",
    "schema",
    "write_bench",
    "write_object",
]
