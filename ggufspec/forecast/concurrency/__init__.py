"""Several users of one llama-server: how their tokens share batches, what these cost, and tokens/s."""

from __future__ import annotations

from ggufspec.forecast.concurrency.between import TrafficPoint, between, leave_one_out
from ggufspec.forecast.concurrency.lockstep import (
    Served,
    StepSeconds,
    TracedRequest,
    equal_round_seconds,
    serve,
)
from ggufspec.forecast.concurrency.pass_costs import SequenceRows, ServerCosts
from ggufspec.forecast.concurrency.passes import BATCH, UBATCH, SlotRows, most_rows, split_batch
from ggufspec.forecast.concurrency.users import UsersForecast, forecast_users, forecasts_of_users

__all__ = [
    "BATCH",
    "UBATCH",
    "SequenceRows",
    "Served",
    "ServerCosts",
    "SlotRows",
    "StepSeconds",
    "TracedRequest",
    "TrafficPoint",
    "UsersForecast",
    "between",
    "equal_round_seconds",
    "forecast_users",
    "forecasts_of_users",
    "leave_one_out",
    "most_rows",
    "serve",
    "split_batch",
]
