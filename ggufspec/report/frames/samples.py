"""Parsed logs as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ggufspec.domain import Sample
from ggufspec.report.frames.tables import attributes, frame, list_methods

_FORMER = {"n_draft": "draft", "offloaded_layers": "actual_ngl"}
LOG_COLUMNS = (
    *("file", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "draft"),
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
        *_FORMER,
    ),
)


def logs(samples: Sequence[tuple[str, Sample]]) -> pd.DataFrame:
    """Return one row per parsed log, given as (file name, sample)."""
    rows = [
        {
            "file": file,
            **attributes(sample, LOG_COLUMNS[1:]),
            "draft": sample.n_draft,
            "by_method": list_methods(sample.by_method),
            "actual_ngl": sample.offloaded_layers,
        }
        for file, sample in samples
    ]
    return frame(rows, LOG_COLUMNS, _FORMER)
