"""The client of llama-server and of servers like it: start one, ask it, read what it answers and counts."""

from __future__ import annotations

from ggufspec.llama.server.answers import (
    END,
    AnswerEvent,
    AnswerText,
    Count,
    Timings,
    decode,
    event_text,
    read_properties,
    read_slot_drafts,
    read_slot_methods,
    read_tokens,
    write_answer,
)
from ggufspec.llama.server.client import CHAT_PATH, LoadClient, RequestError, ServerClient, path_of
from ggufspec.llama.server.endpoints import (
    KEY_VARIABLE,
    ServerCounters,
    check_url,
    connect,
    count_tokens,
    describe_server,
    read_counters,
    read_key,
    read_keys,
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
