"""Parsed logs as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ggufspec.domain import Sample
from ggufspec.report.frames.tables import attributes, frame

LOG_COLUMNS = (
    *("file", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "n_draft"),
    *(
        "n_drafted",
        "n_accepted",
        "accept_rate",
        "n_rounds",
        "draft_s",
        "verify_s",
        "load_ms",
        "offloaded_layers",
        "total_layers",
        "gpu_bytes",
        "draft_gpu_bytes",
        "status",
    ),
)


def logs(samples: Sequence[tuple[str, Sample]]) -> pd.DataFrame:
    """Return one row per parsed log, given as (file name, sample)."""
    return frame(
        [{"file": file, **attributes(sample, LOG_COLUMNS[1:])} for file, sample in samples], LOG_COLUMNS
    )
