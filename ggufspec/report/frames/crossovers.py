"""The cells of a crossover as a table."""

from __future__ import annotations

import pandas as pd

from ggufspec.analysis import CrossoverMap
from ggufspec.report.frames.tables import frame

CROSSOVER_COLUMNS = (
    *(
        "users",
        "depth",
        "source",
        "draft",
        "gen_tps",
        "target_gen_tps",
        "speedup",
        "speedup_lo",
        "speedup_hi",
    ),
    *("verdict", "repeats"),
)


def crossover(crossover: CrossoverMap) -> pd.DataFrame:
    """Return one row per number of users and depth, with the fastest draft size there.

    ``source`` is measured, forecast or unknown; tokens/s are of all users together.
    """
    rows = [
        {
            "users": cell.users,
            "depth": cell.depth,
            "source": cell.source.value,
            "draft": best and best.draft,
            "gen_tps": best and best.tokens_per_s,
            "target_gen_tps": cell.target_tokens_per_s,
            "speedup": best and best.speedup.value,
            "speedup_lo": best and best.speedup.lo,
            "speedup_hi": best and best.speedup.hi,
            "verdict": cell.verdict.value,
            "repeats": cell.repeats,
        }
        for cell in crossover.cells
        for best in (cell.best,)
    ]
    return frame(rows, CROSSOVER_COLUMNS)
