"""The results of benches: a frozen ResultSet, and a store that loses no finished run in a crash."""

from __future__ import annotations

from ggufspec.results.configuration import (
    CONFIGURATION_VERSION,
    CROSSOVER_VERSION,
    Configuration,
    CrossoverAxes,
    PassedOver,
    Recommendation,
    find_configuration,
    has_configuration,
    json_schema,
    read_configuration,
    read_crossover_axes,
    stored_schemas,
    write_configuration,
    write_crossover_axes,
)
from ggufspec.results.records import decode_hook
from ggufspec.results.resultset import (
    SCHEMA_VERSION,
    CellKey,
    Meta,
    ResultSet,
    Runs,
    ServerStart,
    cell,
    finished,
    list_starts,
    number_loads,
)
from ggufspec.results.store import (
    LATEST,
    amend,
    append,
    check_name,
    close,
    confirm,
    create,
    delete,
    ids,
    judge,
    load,
    load_each,
    remove_folder,
    reopen,
    say_damage,
    write_bench,
)
from ggufspec.results.writer import LineWriter, Lock, disk, read_object, read_stored, read_value, write_object
