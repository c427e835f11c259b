"""The client of llama-server and of servers like it: start one, ask it, read what it answers and counts."""

from __future__ import annotations

from ggufspec.llama.server.answers import (
    END,
    CompletionEvent,
    Count,
    Timings,
    decode,
    event_text,
    read_event,
    read_openai_event,
    read_properties,
    read_slot_drafts,
    read_tokens,
)
from ggufspec.llama.server.client import LoadClient, RequestError
from ggufspec.llama.server.endpoints import (
    KEY_VARIABLE,
    ServerCounters,
    check_url,
    connect,
    count_tokens,
    describe_server,
    read_counters,
    read_key,
    read_metrics,
    sends_in_clear,
)
from ggufspec.llama.server.launching import (
    PortTakenError,
    Server,
    find_free_ports,
    readable_argv,
    start,
    start_printed,
)

__all__ = [
    "END",
    "KEY_VARIABLE",
    "CompletionEvent",
    "Count",
    "LoadClient",
    "PortTakenError",
    "RequestError",
    "Server",
    "ServerCounters",
    "Timings",
    "check_url",
    "connect",
    "count_tokens",
    "decode",
    "describe_server",
    "event_text",
    "find_free_ports",
    "read_counters",
    "read_event",
    "read_key",
    "read_metrics",
    "read_openai_event",
    "read_properties",
    "read_slot_drafts",
    "read_tokens",
    "readable_argv",
    "sends_in_clear",
    "start",
    "start_printed",
]
