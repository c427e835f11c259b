"""A comparison of two benches as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields

import pandas as pd

from ggufspec.analysis import BenchComparison, Guard, ListedBench
from ggufspec.notebooks import named_options
from ggufspec.report.frames.bench import settings
from ggufspec.report.frames.tables import frame
from ggufspec.report.schemas.rows import BenchWarned, ComparisonRow

COMPARISON_COLUMNS = ComparisonRow.columns()


@named_options
def comparison(compared: BenchComparison, guard: Guard | None = None) -> pd.DataFrame:
    """Return one row per arm that both sides have, see ``ComparisonRow``."""
    listed = [
        BenchWarned(bench=bench, name=name, advice=advice)
        for bench, warnings in compared.warnings.items()
        for name, advice in warnings.items()
    ]
    guarded = {tested.row.before.spec: tested for tested in guard.rows} if guard else {}
    rows = [
        ComparisonRow(
            arm=settings(row.before.spec),
            before_tps=row.before_tps,
            after_tps=row.after_tps,
            ratio=row.change.ratio,
            p_value=row.change.p_value,
            verdict=row.change.verdict,
            guard_lo=guarded[row.before.spec].lo if row.before.spec in guarded else None,
            guard_hi=guarded[row.before.spec].hi if row.before.spec in guarded else None,
            guard=guarded[row.before.spec].state.value if row.before.spec in guarded else None,
            design=compared.design.value,
            before_accept_rate=row.before.acceptance.accept_rate if row.before.acceptance else None,
            after_accept_rate=row.after.acceptance.accept_rate if row.after.acceptance else None,
            texts_equal=row.texts_equal,
            texts=row.texts,
            bench_warnings=listed,
        )
        for row in compared.rows
    ]
    return frame([row.cells() for row in rows], COMPARISON_COLUMNS)


_PRESENT = {"draft_sizes": "draft"}  # field of a listed bench -> column
BENCH_COLUMNS = (
    *(_PRESENT.get(field.name, field.name) for field in fields(ListedBench)),
    "complete",
)


def benches(stored: Iterable[ListedBench]) -> pd.DataFrame:
    """Return a row for each bench; ``complete`` is whether it has every planned run."""
    rows = [
        {
            **asdict(bench),
            "models": list(bench.models),
            "draft": list(bench.draft_sizes),
            "complete": bench.is_complete,
        }
        for bench in stored
    ]
    return frame(rows, BENCH_COLUMNS)
