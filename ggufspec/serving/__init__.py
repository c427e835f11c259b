"""Several users at once on a server, started here or running already: every request is recorded."""

from __future__ import annotations

from ggufspec.engines import Engine
from ggufspec.llama.install import Install
from ggufspec.serving.client import (
    LEAST_ARRIVALS,
    REQUESTS_PER_USER,
    TrafficRun,
    UserReply,
    arrival_times,
    count_requests,
    plan_replay,
    plan_traffic,
    run_in_loop,
    take_event,
)
from ggufspec.serving.engine import TrafficEngine
from ggufspec.serving.figures import RequestRecord, decode_records, encode_record, summarize
from ggufspec.serving.rereading import reread_run
from ggufspec.serving.running import (
    RUNNING,
    CounterPair,
    RunningEngine,
    make_body,
    with_counters,
)

__all__ = [
    "LEAST_ARRIVALS",
    "REQUESTS_PER_USER",
    "RUNNING",
    "CounterPair",
    "RequestRecord",
    "RunningEngine",
    "TrafficRun",
    "UserReply",
    "arrival_times",
    "count_requests",
    "decode_records",
    "encode_record",
    "make",
    "make_body",
    "plan_replay",
    "plan_traffic",
    "reread_run",
    "run_in_loop",
    "summarize",
    "take_event",
    "with_counters",
]


def make(
    name: str,
    install: Install,
    *,
    timeout_s: float | None = None,
    capacity: int | None = None,
    per_arm: bool = False,
) -> Engine:
    """Return the engine ``server`` that also measures several users; arguments as for ``engines.make``."""
    return TrafficEngine(install=install, name=name, capacity=capacity, timeout_s=timeout_s, per_arm=per_arm)
