"""Several users at once on a server, started here or running already: every request is recorded."""

from __future__ import annotations

from ggufspec.engines import Engine
from ggufspec.llama.install import Install
from ggufspec.serving.client import Reply, TrafficRun, open_client, run_in_loop, take_events
from ggufspec.serving.counters import CounterPair, ServerCounters, read_counters, with_counters
from ggufspec.serving.dealing import (
    LEAST_ARRIVALS,
    REQUESTS_PER_USER,
    arrival_times,
    count_requests,
    plan_replay,
    plan_traffic,
)
from ggufspec.serving.endpoints import (
    KEY_VARIABLE,
    check_url,
    count_tokens,
    describe_server,
    read_key,
    sends_in_clear,
)
from ggufspec.serving.engine import TrafficEngine
from ggufspec.serving.figures import BURST_S, summarize
from ggufspec.serving.openai import make_body, take_chunk
from ggufspec.serving.records import RequestRecord, decode_records, encode_record
from ggufspec.serving.rereading import reread_run
from ggufspec.serving.running import RUNNING, RunningEngine

__all__ = [
    "BURST_S",
    "KEY_VARIABLE",
    "LEAST_ARRIVALS",
    "REQUESTS_PER_USER",
    "RUNNING",
    "CounterPair",
    "Reply",
    "RequestRecord",
    "RunningEngine",
    "ServerCounters",
    "TrafficRun",
    "arrival_times",
    "check_url",
    "count_requests",
    "count_tokens",
    "decode_records",
    "describe_server",
    "encode_record",
    "make",
    "make_body",
    "open_client",
    "plan_replay",
    "plan_traffic",
    "read_counters",
    "read_key",
    "reread_run",
    "run_in_loop",
    "sends_in_clear",
    "summarize",
    "take_chunk",
    "take_events",
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
