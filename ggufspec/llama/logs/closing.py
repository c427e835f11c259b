"""The statement that a program closes its log with, told apart from look-alikes in generated text.

Drafting programs close with a summary and two blocks of timings, plain ones with one block. A statement
counts only if it is in order, of one style with the rest of the log, and if its arithmetic is right; of
several such statements the true one is that which nothing but llama.cpp's own lines follow.
"""

from __future__ import annotations

from collections.abc import Callable

from ggufspec.domain import Program
from ggufspec.llama.logs.lines import Line, hits, lines_from
from ggufspec.llama.logs.statements import Closing, read_block, read_summary

_TAIL_BYTES = 1 << 16  # where a statement is looked for first
_HEAD_BYTES, _HEAD_LINES = 1 << 16, 12  # the style of a log shows in its first lines
_EARLY = ("ggml_", "load_backend", "warning")  # written before prefixes are set up


def find_closing(data: bytes, program: Program | None) -> Closing | None:
    """Return the statement that the program itself closed with, or None.

    Args:
        data: the whole log.
        program: what wrote it, if that is known.
    """
    for start in (max(0, len(data) - _TAIL_BYTES), 0):
        summaries, blocks = [], []
        if program is not Program.PLAIN:
            summaries = _scan(data, start, b"encoded ", read_summary)
        if program in (None, Program.PLAIN):
            blocks = _scan(data, start, b" load time = ", read_block)
        found = _outermost(summaries, blocks)
        prefixed = _is_prefixed(data, found) if found else None
        closing = _true_one([closing for closing in found if prefixed in (None, closing.prefixed)])
        if start == 0 or (closing is not None and closing.whole and closing.at_end):
            return closing  # nothing before could stand against it
    return None


def _scan(
    data: bytes, start: int, needle: bytes, read: Callable[[bytes, Line], Closing | None]
) -> list[Closing]:
    """Return what ``read`` makes of the lines with a needle, each read once."""
    found: list[Closing] = []
    for line in hits(data, needle, start=start):
        closing = read(data, line) if not found or line.start >= found[-1].end else None
        if closing is not None:
            found.append(closing)
    return found


def _outermost(summaries: list[Closing], blocks: list[Closing]) -> list[Closing]:
    """Return all statements in order, without timings that are a part of a drafting program's statement."""
    found: list[Closing] = []
    covered = 0
    for closing in sorted(summaries + blocks, key=lambda closing: closing.start):
        if closing.start >= covered:
            found.append(closing)
            covered = closing.end
    return found


def _true_one(found: list[Closing]) -> Closing | None:
    """Return the program's own statement; the others stand in generated text.

    In one stream the text comes before the statement, so the true one is last. Only where stdout was put
    behind stderr does text follow it; then it stands directly behind other lines of the program.
    """
    whole = [closing for closing in found if closing.whole]
    last = [closing for closing in whole if closing.at_end][-1:]
    after_log = [closing for closing in whole if not closing.after_text][:1]
    torn = [closing for closing in found if closing.at_end][-1:]
    return next(iter(last + after_log + whole[-1:] + torn), None)


def _is_prefixed(data: bytes, found: list[Closing]) -> bool | None:
    """Return whether most of this log's first lines are prefixed, or None if it has statements only."""
    style: list[bool] = []
    statements = iter(found)
    statement = next(statements, None)
    for line in lines_from(data[:_HEAD_BYTES], 0):
        while statement is not None and statement.end <= line.start:
            statement = next(statements, None)
        inside = statement is not None and statement.start <= line.start
        if line.is_familiar and not inside and not line.message.startswith(_EARLY):
            style.append(line.prefixed)
            if len(style) == _HEAD_LINES:
                break
    return style.count(True) > len(style) / 2 if style else None
