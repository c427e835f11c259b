"""Traces × a cost curve -> tokens/s at every draft size, which one is best, and why, without running any."""

from __future__ import annotations

from ggufspec.forecast.advice import Advice, Reason, best, choose_draft_size, needs, ratio
from ggufspec.forecast.calibration import Calibration, CalibrationRun, calibrate
from ggufspec.forecast.evaluations import Exposure, alone, drafting
from ggufspec.forecast.forecasting import Forecast, RoundRange, closed_form, forecasts, round_range
from ggufspec.forecast.replaying import SIZE_ERROR, RoundsRun, from_counts, replays, time_rounds
