"""A bisection as a table."""

from __future__ import annotations

import pandas as pd

from ggufspec.report.frames.tables import frame
from ggufspec.tuning.bisect import Bisection, Verdict

BISECTION_COLUMNS = (
    *("trial", "bench", "from_version", "to_version", "quantity", "loss", "loss_lo", "loss_hi", "repeats"),
    *("middle_is", "finding", "step_from", "step_to"),
)


def bisection(found: Bisection, verdict: Verdict) -> pd.DataFrame:
    """Return one row per compared pair of versions.

    ``loss`` is what is lost from one version to the other: of speeds the natural logarithm of their ratio, of
    acceptance rates the difference as a fraction. Its interval is that of the trial.
    """
    step = verdict.step
    rows = [
        {
            "trial": number,
            "bench": found.bench(number, judged.trial.places),
            "from_version": found.versions[difference.first],
            "to_version": found.versions[difference.second],
            "quantity": found.quantity.value,
            "loss": difference.value,
            "loss_lo": difference.lo,
            "loss_hi": difference.hi,
            "repeats": len(judged.trial.repeats),
            "middle_is": judged.side and judged.side.value,
            "finding": verdict.finding.value,
            "step_from": step and found.versions[step.first],
            "step_to": step and found.versions[step.second],
        }
        for number, judged in enumerate(verdict.judgements)
        for difference in judged.differences
    ]
    return frame(rows, BISECTION_COLUMNS)
