"""Several users of one llama-server: how their tokens share batches, what these cost, and tokens/s."""

from __future__ import annotations

from ggufspec.forecast.concurrency.between import TrafficPoint, between, leave_one_out
from ggufspec.forecast.concurrency.lockstep import (
    BATCH,
    UBATCH,
    SequenceRows,
    ServerCosts,
    SlotRows,
    TracedRequest,
    equal_round_seconds,
    most_rows,
    serve,
    split_batch,
)
from ggufspec.forecast.concurrency.users import UsersForecast, forecasts_of_users
