"""The measured configurations of a tuning as a table, with the verdict."""

from __future__ import annotations

import pandas as pd

from ggufspec.analysis import Arm, arms
from ggufspec.report.frames.bench import summary_rows
from ggufspec.report.frames.tables import frame
from ggufspec.report.schemas.rows import FinalistRow, SummaryRow
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned

FINALIST_COLUMNS = FinalistRow.columns()


def finalists(tuned: Tuned) -> pd.DataFrame:
    """Return one row per measured configuration: those of the confirmation, then those of the selection."""
    confirmed = _rows(tuned, tuned.results, "confirmation")
    selected = _rows(tuned, tuned.selection.results, "selection")
    return frame([row.cells() for row in (*confirmed, *selected)], FINALIST_COLUMNS)


def _rows(tuned: Tuned, results: ResultSet, stage: str) -> list[FinalistRow]:
    groups = arms.group(results)
    summaries = summary_rows(results, groups)
    return [_row(tuned, arm, stage, summary) for arm, summary in zip(groups, summaries, strict=True)]


def _row(tuned: Tuned, arm: Arm, stage: str, summary: SummaryRow) -> FinalistRow:
    prospect = tuned.outlook.prospect(arm.spec)
    return FinalistRow(
        tuning=tuned.results.meta.id,
        stage=stage,
        recommended=stage == "confirmation" and arm.spec == tuned.overall.arm.spec,
        forecast_tps=prospect.overall.tokens_per_s.value if prospect else None,
        forecast_speedup=prospect.overall.speedup.value if prospect else None,
        serve_context=tuned.serving.context if tuned.serving else None,
        serve_slots=tuned.serving.slots if tuned.serving else None,
        summary=summary,
    )
