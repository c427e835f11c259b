"""The engine ``server``: start llama-server on loopback, send it requests, and stop it."""

from __future__ import annotations

from ggufspec.engines.server.engine import LoadedServer, ServerEngine, load_of
from ggufspec.engines.server.response import Parsed
from ggufspec.engines.server.serving import Rank, TokenCandidate, candidates, question, ranker, serve_once
from ggufspec.engines.server.streaming import AnswerEnd, Span, Stream, StreamingEngine
