"""A comparison of two benches as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields

import pandas as pd

from ggufspec.analysis import BenchComparison, ListedBench
from ggufspec.report.frames.bench import SETTING_COLUMNS, settings
from ggufspec.report.frames.tables import frame

COMPARISON_COLUMNS = (
    *SETTING_COLUMNS,
    *("before_tps", "after_tps", "ratio", "ratio_lo", "ratio_hi", "p_value", "verdict"),
    *("before_accept_rate", "after_accept_rate", "texts_equal", "texts"),
)


def comparison(compared: BenchComparison) -> pd.DataFrame:
    """Return one row per arm that both benches have; ``ratio`` is tokens/s after over tokens/s before."""
    rows = [
        {
            **settings(row.before.spec),
            "before_tps": row.before.rate and row.before.rate.value,
            "after_tps": row.after.rate and row.after.rate.value,
            "ratio": row.change.ratio.value,
            "ratio_lo": row.change.ratio.lo,
            "ratio_hi": row.change.ratio.hi,
            "p_value": None if compared.no_verdict else row.change.p_value,
            "verdict": compared.verdict(row.change),
            "before_accept_rate": row.before.acceptance and row.before.acceptance.accept_rate,
            "after_accept_rate": row.after.acceptance and row.after.acceptance.accept_rate,
            "texts_equal": row.texts_equal,
            "texts": row.texts,
        }
        for row in compared.rows
    ]
    return frame(rows, COMPARISON_COLUMNS)


BENCH_COLUMNS = (*(field.name for field in fields(ListedBench)), "complete")


def benches(stored: Iterable[ListedBench]) -> pd.DataFrame:
    """Return a row for each bench; ``complete`` is whether it has every planned run."""
    rows = [
        {
            **asdict(bench),
            "models": list(bench.models),
            "draft_sizes": list(bench.draft_sizes),
            "complete": bench.is_complete,
        }
        for bench in stored
    ]
    return frame(rows, BENCH_COLUMNS)
