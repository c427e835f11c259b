"""Captured bytes -> the messages that llama.cpp wrote, without colours, prefixes and JSON.

Lines are searched with ``bytes.find``, and only lines with a needle are decoded. Most of a log says nothing
about speed, so this makes parsing fast.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

MOST_LOG_BYTES = 16 << 20
"""Of what a program prints in one run; a long run has less than 1 MB."""
MOST_SERVER_LOG_BYTES = 256 << 20
"""Of what a server, or a worker, prints in all of its runs."""

_LONGEST = 4096  # no line that is read here is longer, but text without newlines can be

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CAPTURE = re.compile(  # what `docker logs -t`, compose and journals put before a line
    r"(?:[\w.-]{1,64} +\| )?(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]{5,20}(?:Z|[+-]\d\d:?\d\d)?\]? +)?"
)
OWN_WORDS = (  # the beginnings of lines that llama.cpp writes
    r"(?:~?llama|llm|ggml|gguf|common|clip|load)_\w+(?:\(\))?:|~?llama_\w+:"
    r"|(?:main|build|load|print_info|system_info|sampler \w+|generate|operator\(\)|sched_reserve|init): "
    r"|system info: |version: .*\d|(?:srv|slot|que|cmn|spec) +\w+|Log (?:start|end)\b"
    r"|statistics +[\w-]{1,40}: #calls"
    r"| ?(?:INFO|WARN|ERR|VERB) +\[| *what\(\):|(?:warning|error): "
    r"|GGML_ASSERT|terminate called|Segmentation fault|Aborted"
)
SUMMARY_WORDS = r"(?:en|de)coded +\d|n_\w+ *= |accept +=|draft:|target:"
_TIME = re.compile(r"\d{1,6}\.\d\d\.\d{3}\.\d{3} [IWED] ")
_LEVELS = (" I ", " W ", " E ", " D ")
_PREFIX = re.compile(
    rf"\d{{1,6}}\.\d\d\.\d{{3}}\.\d{{3}} (?:[IWED] |$)?|[IWED] (?={OWN_WORDS}|{SUMMARY_WORDS}|$)"
)
_FAMILIAR = re.compile(OWN_WORDS)


@dataclass(kw_only=True)
class LogTail:
    """The unread end of a log that a process still writes."""

    log: Path
    _reported: int = 0  # bytes that ``read`` has returned

    def peek(self) -> bytes:
        """Return the bytes logged since the last ``read``."""
        with self.log.open("rb") as file:
            file.seek(self._reported)
            return file.read()

    def read(self) -> bytes:
        """Return the same bytes and mark them as read."""
        unread = self.peek()
        self._reported += len(unread)
        return unread


class LogLine(NamedTuple):
    """One message of a log; ``start`` and ``end`` are the bounds of its captured line."""

    start: int
    end: int
    message: str
    prefixed: bool  # by llama.cpp's own time and level, or as JSON
    is_text: bool  # generated text, as far as the format tells (JSONL does)
    is_complete: bool  # False for a last line without a newline

    @property
    def is_familiar(self) -> bool:
        """Whether llama.cpp writes lines with this beginning."""
        return not self.is_text and (self.prefixed or _FAMILIAR.match(self.message) is not None)

    @property
    def is_blank(self) -> bool:
        """Whether the line is empty."""
        return not self.message.strip()


def hits(data: bytes, needle: bytes, *, start: int = 0, end: int | None = None) -> Iterator[LogLine]:
    """Yield the messages that contain ``needle``, in order."""
    position, end = start, len(data) if end is None else end
    while (hit := data.find(needle, position, end)) >= 0:
        line_start = data.rfind(b"\n", position, hit) + 1 or position
        position = _line_end(data, hit)
        text = needle.decode()
        for line in _decode(data, line_start, position):
            if text in line.message:
                yield line


def lines_from(data: bytes, start: int) -> Iterator[LogLine]:
    """Yield every message from the line that begins at ``start``."""
    while start < len(data):
        end = _line_end(data, start)
        yield from _decode(data, start, end)
        start = end


def lines_before(data: bytes, start: int) -> Iterator[LogLine]:
    """Yield the messages before the line that begins at ``start``, the nearest first."""
    while start > 0:
        previous = data.rfind(b"\n", 0, start - 1) + 1
        yield from reversed(_decode(data, previous, start))
        start = previous


def _line_end(data: bytes, position: int) -> int:
    return data.find(b"\n", position) + 1 or len(data)


def _decode(data: bytes, start: int, end: int) -> list[LogLine]:
    raw = data[max(start, end - _LONGEST) : end]
    is_complete = raw.endswith(b"\n")
    captured = raw.decode(errors="replace").strip("\r\n")
    captured = captured[match.end() :] if (match := _CAPTURE.match(captured)) else captured
    record = _record(captured)
    if record is None:
        return [_line(start, end, captured, False, is_complete)]
    message = str(record.get("msg", record.get("type")))
    if message == "build info":  # servers up to b3760 log it beside their message
        message = f"build: {record.get('build')} ({record.get('commit')})"
    is_text = record.get("level") == "none"
    parts = (_line(start, end, part, is_text, is_complete) for part in message.removesuffix("\n").split("\n"))
    return [part._replace(prefixed=True) for part in parts]


def _record(captured: str) -> dict[str, object] | None:
    """Return a line of JSONL, of `--log-jsonl` or of a server up to b3760, or None."""
    if not captured.startswith('{"'):
        return None
    try:
        record = json.loads(captured)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and ("msg" in record or "type" in record) else None


def _line(start: int, end: int, message: str, is_text: bool, is_complete: bool) -> LogLine:
    if "\x1b" in message:
        message = _COLOUR.sub("", message)
    message = message.strip("\r")
    prefix = _PREFIX.match(message)
    if prefix is not None:
        message = message[prefix.end() :]
    if any(level in message for level in _LEVELS) and (inner := _TIME.search(message)):
        if prefix is None:  # text without a newline came first
            prefix, message = inner, message[inner.end() :]
        message = _TIME.sub("", message)  # a message that was written in pieces
    return LogLine(start, end, message, prefix is not None, is_text, is_complete)
