"""A clean log -> where the log of each run begins.

A paste has several runs one behind the other: a terminal's, a notebook's, those of a comparison. A run begins
with what a program prints while it loads, or with the command that started it. Such lines begin a run only
behind the figures of another: a program prints several of them, and generated text may contain any.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggufspec.llama.logs.lines import LogLine, hits
from ggufspec.llama.logs.parsing import has_request
from ggufspec.llama.logs.statements import Closing

_PASTED = 4 << 20  # bytes; commands and fences are looked for only in what a person may have pasted

_BUILD = b"build"  # the program's, but not everything that has the word
_LOADING = (  # no program prints these after it began to generate
    *(b"Log start", _BUILD, b"loaded meta data with", b"load_backend: "),
    *(b"_init: found ", b"warning: no", b"loading model", b"common_param", b"adding speculative"),
)
# printed once by a run, so a second one is another's
_ONCE = re.compile(r"Log start|main: build = |build: \d|INFO \[ +main\] build info")
_MODEL_OPTIONS = (b" -m ", b" --model", b" -hf ")
_COMMAND = re.compile(
    r"(?:.{0,120}?[$#%>!❯➜»] ?|`)?(?:[^\s`]{0,200}[/\\])?"  # a shell's prompt, the program's folder
    r"(?:llama-)?(?:cli|completion|main|server|speculative(?:-simple)?)(?:\.exe)? -"
)
_FENCE = re.compile(rb"^(?:```|~~~)", re.MULTILINE)


class Segment(NamedTuple):
    """The bytes of a log that are one run's, with text around it."""

    start: int
    end: int
    has_head: bool  # lines that a program prints while it loads: all else is its log, or text


class _Mark(NamedTuple):
    start: int
    kind: str  # "loading", "command", "fence", or the text of a line that a run prints once


def split(data: bytes, statements: Sequence[Closing]) -> Iterator[Segment]:
    """Yield the segments of a log, in order; each has at most one program's loading.

    Args:
        data: the clean log.
        statements: the closing statements in it that are whole.
    """
    start, checked = 0, 0
    seen: set[str] = set()
    fenced = is_open = done = False
    starts = [statement.start for statement in statements]
    for mark in _marks(data):
        done = done or bisect_left(starts, mark.start) > bisect_left(starts, start)
        done = done or has_request(data, checked, mark.start)
        checked = mark.start
        # a fence ends a log that began in it; other fences are a model's
        begins = (done and (mark.kind != "fence" or fenced)) or (mark.kind in seen and _ONCE.match(mark.kind))
        if begins:
            yield Segment(start, mark.start, _is_headed(seen))
            start, seen, done, fenced = mark.start, set(), False, False
        if mark.kind == "fence":
            is_open = not is_open
        elif mark.kind != "command":
            fenced = is_open if not _is_headed(seen) else fenced
        seen.add(mark.kind)
    yield Segment(start, len(data), _is_headed(seen))


def _is_headed(seen: set[str]) -> bool:
    return bool(seen - {"command", "fence"})


def _marks(data: bytes) -> list[_Mark]:
    """Return the lines where a run may begin, in order."""
    marks = {
        line.start: _Mark(line.start, _kind(line))
        for needle in _LOADING
        for line in hits(data, needle)
        if line.is_familiar and (needle != _BUILD or _ONCE.match(line.message))
    }
    if len(data) <= _PASTED:
        commands = (line for option in _MODEL_OPTIONS for line in hits(data, option))
        starts = [(line.start, "command") for line in commands if _COMMAND.match(line.message)]
        starts += [(match.start(), "fence") for match in _FENCE.finditer(data)]
        for start, mark in starts:
            marks.setdefault(start, _Mark(start, mark))
    return [marks[start] for start in sorted(marks)]


def _kind(line: LogLine) -> str:
    once = _ONCE.match(line.message)
    return once[0].rstrip("0123456789") if once else "loading"
