"""The results of benches: a frozen ResultSet, and a store that loses no finished run in a crash."""

from __future__ import annotations

from ggufspec.results.configuration import (
    CONFIGURATION_VERSION,
    Configuration,
    PassedOver,
    Recommendation,
    find_configuration,
    has_configuration,
    read_configuration,
    write_configuration,
)
from ggufspec.results.crossover import (
    CROSSOVER_VERSION,
    CrossoverAxes,
    read_crossover_axes,
    write_crossover_axes,
)
from ggufspec.results.jsonschemas import json_schema, stored_schemas
from ggufspec.results.records import decode_hook
from ggufspec.results.resultset import SCHEMA_VERSION, Meta, ResultSet, cell, finished
from ggufspec.results.runs import CellKey, Runs
from ggufspec.results.store import (
    LATEST,
    amend,
    append,
    check_name,
    close,
    confirm,
    create,
    delete,
    find_bench,
    ids,
    judge,
    load,
    load_each,
    reopen,
    say_damage,
    write_bench,
)
from ggufspec.results.writer import LineWriter, Lock, disk, read_object, read_value, write_object

__all__ = [
    "CONFIGURATION_VERSION",
    "CROSSOVER_VERSION",
    "LATEST",
    "SCHEMA_VERSION",
    "CellKey",
    "Configuration",
    "CrossoverAxes",
    "LineWriter",
    "Lock",
    "Meta",
    "PassedOver",
    "Recommendation",
    "ResultSet",
    "Runs",
    "amend",
    "append",
    "cell",
    "check_name",
    "close",
    "confirm",
    "create",
    "decode_hook",
    "delete",
    "disk",
    "find_bench",
    "find_configuration",
    "finished",
    "has_configuration",
    "ids",
    "json_schema",
    "judge",
    "load",
    "load_each",
    "read_configuration",
    "read_crossover_axes",
    "read_object",
    "read_value",
    "reopen",
    "say_damage",
    "stored_schemas",
    "write_bench",
    "write_configuration",
    "write_crossover_axes",
    "write_object",
]
