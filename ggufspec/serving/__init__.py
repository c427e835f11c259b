"""Several users at once on a server, started here or running already: every request is recorded."""

from __future__ import annotations

from ggufspec.serving.client import (
    LEAST_ARRIVALS,
    REQUESTS_PER_USER,
    TrafficRun,
    UserReply,
    arrival_times,
    count_requests,
    plan_traffic,
    run_in_loop,
    take_event,
)
from ggufspec.serving.engine import TrafficEngine, reread_run
from ggufspec.serving.figures import RequestRecord, decode_records, encode_record, summarize
from ggufspec.serving.running import RUNNING, CounterPair, RankServed, RunningEngine, make_body, with_counters
