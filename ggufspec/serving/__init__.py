"""Several users at once on one llama-server: prompts dealt to clients, every request recorded."""

from __future__ import annotations

from ggufspec.engines import Engine
from ggufspec.llama.install import Install
from ggufspec.serving.client import Reply, TrafficRun, open_client, run_in_loop, take_events
from ggufspec.serving.dealing import LEAST_ARRIVALS, REQUESTS_PER_USER, arrival_times, plan_traffic
from ggufspec.serving.engine import TrafficEngine
from ggufspec.serving.figures import BURST_S, summarize
from ggufspec.serving.records import RequestRecord, decode_records, encode_record

__all__ = [
    "BURST_S",
    "LEAST_ARRIVALS",
    "REQUESTS_PER_USER",
    "Reply",
    "RequestRecord",
    "TrafficRun",
    "arrival_times",
    "decode_records",
    "encode_record",
    "make",
    "open_client",
    "plan_traffic",
    "run_in_loop",
    "summarize",
    "take_events",
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
