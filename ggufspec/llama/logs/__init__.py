"""Logs of llama.cpp's programs, of any era, to samples."""

from __future__ import annotations

from ggufspec.llama.logs.lines import MOST_LOG_BYTES, MOST_SERVER_LOG_BYTES, LogTail
from ggufspec.llama.logs.reading import LoggedRun, parse, read
from ggufspec.llama.logs.rounds import find_rounds, find_statistics
