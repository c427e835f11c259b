"""Parsed logs as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ggufspec.llama.logs import LoggedRun
from ggufspec.report.frames.tables import attributes, frame, list_methods
from ggufspec.report.schemas.rows import plain

LOG_COLUMNS = (
    *("file", "lines", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "draft"),
    *(
        "n_drafted",
        "n_accepted",
        "accept_rate",
        "n_rounds",
        "by_method",
        "draft_s",
        "verify_s",
        "load_ms",
        "actual_ngl",
        "total_layers",
        "gpu_bytes",
        "draft_gpu_bytes",
        "status",
    ),
)


def logs(runs: Sequence[LoggedRun]) -> pd.DataFrame:
    """Return one row per run in logs, with the lines that have its figures."""
    rows = [
        {
            **attributes(run.sample, LOG_COLUMNS),
            "file": run.file,
            "lines": None if run.lines is None else "-".join(map(str, run.lines)),
            "draft": run.sample.n_draft,
            "by_method": plain(list_methods(run.sample.by_method)),
            "actual_ngl": run.sample.offloaded_layers,
        }
        for run in runs
    ]
    return frame(rows, LOG_COLUMNS)
