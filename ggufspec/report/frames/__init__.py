"""Results as pandas DataFrames; the only room that imports pandas at run time.

Fractions stay fractions, absent values are null, and column names have the units.
"""

from __future__ import annotations

from ggufspec.report.frames.bench import (
    RUN_COLUMNS,
    SUMMARY_COLUMNS,
    machines,
    origin,
    runs,
    sort_by_arm,
    summary,
)
from ggufspec.report.frames.bisections import BISECTION_COLUMNS, bisection
from ggufspec.report.frames.comparisons import BENCH_COLUMNS, COMPARISON_COLUMNS, benches, comparison
from ggufspec.report.frames.detail import (
    CATEGORY_COLUMNS,
    CELL_COLUMNS,
    PLANNED_BLOCK_COLUMNS,
    POSITION_COLUMNS,
    PROMPT_COLUMNS,
    ROUND_COLUMNS,
    categories,
    cells,
    planned_blocks,
    positions,
    prompts,
    rounds,
)
from ggufspec.report.frames.memory import MEMORY_COLUMNS, memory_devices, memory_overview, memory_trade
from ggufspec.report.frames.samples import LOG_COLUMNS, logs
from ggufspec.report.frames.tables import join_machines, read_parquet

__all__ = [
    "BENCH_COLUMNS",
    "BISECTION_COLUMNS",
    "CATEGORY_COLUMNS",
    "CELL_COLUMNS",
    "COMPARISON_COLUMNS",
    "LOG_COLUMNS",
    "MEMORY_COLUMNS",
    "PLANNED_BLOCK_COLUMNS",
    "POSITION_COLUMNS",
    "PROMPT_COLUMNS",
    "ROUND_COLUMNS",
    "RUN_COLUMNS",
    "SUMMARY_COLUMNS",
    "benches",
    "bisection",
    "categories",
    "cells",
    "comparison",
    "join_machines",
    "logs",
    "machines",
    "memory_devices",
    "memory_overview",
    "memory_trade",
    "origin",
    "planned_blocks",
    "positions",
    "prompts",
    "read_parquet",
    "rounds",
    "runs",
    "sort_by_arm",
    "summary",
]
