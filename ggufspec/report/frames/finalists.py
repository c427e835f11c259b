"""The measured configurations of a tuning as a table, with the verdict."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ggufspec.analysis import Arm, arms
from ggufspec.report.frames.bench import SUMMARY_COLUMNS, summary_rows
from ggufspec.report.frames.tables import frame
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned

FINALIST_COLUMNS = (
    *("tuning", "stage", "recommended", "forecast_tps", "forecast_speedup", "serve_context", "serve_slots"),
    *SUMMARY_COLUMNS,
)


def finalists(tuned: Tuned) -> pd.DataFrame:
    """Return one row per measured configuration: those of the confirmation, then those of the selection.

    ``stage`` is ``confirmation`` or ``selection``; only the first has figures that a verdict may rest on.
    ``recommended`` marks what to run over all prompts, which may be the target alone.
    """
    confirmed = _rows(tuned, tuned.results, "confirmation")
    selected = _rows(tuned, tuned.selection.results, "selection")
    return frame([*confirmed, *selected], FINALIST_COLUMNS)


def _rows(tuned: Tuned, results: ResultSet, stage: str) -> list[dict[str, Any]]:
    groups = arms.group(results)
    rows = summary_rows(results, groups)
    return [{**_of_tuning(tuned, arm, stage), **row} for arm, row in zip(groups, rows, strict=True)]


def _of_tuning(tuned: Tuned, arm: Arm, stage: str) -> dict[str, Any]:
    prospect = tuned.outlook.prospect(arm.spec)
    return {
        "tuning": tuned.results.meta.id,
        "stage": stage,
        "recommended": stage == "confirmation" and arm.spec == tuned.overall.arm.spec,
        "forecast_tps": prospect and prospect.overall.tokens_per_s.value,
        "forecast_speedup": prospect and prospect.overall.speedup.value,
        "serve_context": tuned.serving and tuned.serving.context,
        "serve_slots": tuned.serving and tuned.serving.slots,
    }
