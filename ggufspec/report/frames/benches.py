"""The list of stored benches as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields

import pandas as pd

from ggufspec.analysis.listing import ListedBench
from ggufspec.report.frames.tables import frame

BENCH_COLUMNS = (*(field.name for field in fields(ListedBench)), "complete")


def benches(stored: Iterable[ListedBench]) -> pd.DataFrame:
    """Return a row for each bench; ``complete`` is whether every planned run is there."""
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
