"""Traces × a cost curve -> tokens/s at every draft size, which one is best, and why, without running any."""

from __future__ import annotations

from ggufspec.forecast.calibration import Calibration, CalibrationRun, calibrate
from ggufspec.forecast.forecasting import (
    Advice,
    Exposure,
    Forecast,
    Reason,
    RoundRange,
    alone,
    best,
    choose_draft_size,
    closed_form,
    drafting,
    forecasts,
    needs,
    ratio,
    round_range,
)
from ggufspec.forecast.replaying import SIZE_ERROR, RoundsRun, from_counts, replays, time_rounds
