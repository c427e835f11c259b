"""The server engine: llama-server on loopback, started, asked over HTTP, and stopped."""

from __future__ import annotations

from ggufspec.engines.server.engine import ServerEngine
from ggufspec.engines.server.loads import load_of
from ggufspec.engines.server.ranking import Rank, TokenCandidate, ranker
from ggufspec.engines.server.streaming import Ending, Span, Stream, StreamingEngine

__all__ = [
    "Ending",
    "Rank",
    "ServerEngine",
    "Span",
    "Stream",
    "StreamingEngine",
    "TokenCandidate",
    "load_of",
    "ranker",
]
