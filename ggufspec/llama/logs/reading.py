"""A log as people keep or paste it -> the figures of every run in it.

``parsing.parse`` reads the log that one run of a program wrote. Here a text may have several runs, and
anything around and between their figures.

A paste has several runs one behind the other: a terminal's, a notebook's, those of a comparison. A run begins
with what a program prints while it loads, or with the command that started it. Such lines begin a run only
behind the figures of another: a program prints several of them, and generated text may contain any.
"""

from __future__ import annotations

import os
import re
import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload

from ggufspec.domain import Program, Sample, Status
from ggufspec.errors import LogError
from ggufspec.llama.logs import parsing
from ggufspec.llama.logs.fragments import LoggedFigures, find_answers, find_fragments
from ggufspec.llama.logs.lines import LogLine, hits, lines_from
from ggufspec.llama.logs.statements import Closing, find_closing, find_statements

if TYPE_CHECKING:
    from ggufspec.llama.logs.cleaning import CleanLog

_PASTED = 4 << 20  # bytes: only in what a person may have pasted, prose, commands and fences separate runs

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
_BENCH = re.compile(rb"^\| *(?:model|params|size) .*\| +(?:test|t/s) +\|", re.MULTILINE)
_LOGGED = re.compile(  # lines of a server or of programs beside it, which prose does not resemble
    r"[\w~.-]{1,64}(?:\(\))?: |[\[{]|.* += |(?:srv|slot|que) "
)
_FILE_NAMES = (".log", ".txt", ".md", ".json", ".jsonl", ".ipynb", ".out", ".err")
_LONGEST_PATH = 4096  # Linux's PATH_MAX; a longer text is no path


class LoggedRun(NamedTuple):
    """One run in a log.

    ``lines`` are the first and the last line with its figures, counted from 1; for a notebook's file, in the
    text of its cells. They are None if the log has no figures.
    """

    file: str
    sample: Sample
    lines: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class LogReading:
    """What one log says.

    Attributes:
        runs: those with figures; if there are none, the one whose status tells why, if there is one.
        notes: what a reader should know of where the figures are from.
        problem: why there are no figures, or None.
    """

    runs: tuple[LoggedRun, ...]
    notes: tuple[str, ...] = ()
    problem: LogError | None = None


class LogSpan(NamedTuple):
    """The bytes of a log that are one run's, with text around it."""

    start: int
    end: int
    has_head: bool  # lines that a program prints while it loads: all else is its log, or text


def read(raw: bytes, name: str) -> LogReading:
    """Read every run in a log, or in a text with logs.

    Args:
        raw: the bytes of a file or of a text.
        name: what the runs' ``file`` says.
    """
    from ggufspec.llama.logs.cleaning import clean  # its patterns are slow to compile

    log = clean(raw)
    statements = [closing for closing in find_statements(log.data) if closing.is_whole]
    figures: list[LoggedFigures] = []
    notes: list[str] = []
    lost: list[LogSpan] = []
    for segment in split(log.data, statements):
        of_segment, note = _read_segment(log, segment, statements)
        figures += of_segment
        notes += note
        if not of_segment and segment.has_head:
            lost.append(segment)
    if not figures:
        return _no_figures(log.data, name)
    runs = (LoggedRun(name, figure.sample, _lines(log, figure.start, figure.end)) for figure in figures)
    notes += [f"a log without figures in {_span(log, part.start, part.end)}" for part in lost]
    return LogReading(runs=tuple(runs), notes=tuple(notes))


def _read_segment(
    log: CleanLog, segment: LogSpan, statements: Sequence[Closing]
) -> tuple[list[LoggedFigures], list[str]]:
    """Return the runs of a segment, and notes about them."""
    start, end, has_head = segment
    data = log.data[start:end]
    whole = [closing for closing in statements if start <= closing.start < end]
    if has_head and parsing.is_server(data):
        return list(_requests(data, start)), []
    closing = find_closing(data, None) if has_head else None
    if closing is not None and closing.is_whole:
        closing_figures = LoggedFigures(
            start + closing.start, start + closing.end, parsing.sample_statement(data, closing)
        )
        others = [
            _span(log, other.start, other.end) for other in whole if other.start != closing_figures.start
        ]
        notes: list[str] = []
        if others:
            notes = [f"{', '.join(others)} look like figures, too; they are taken for generated text"]
        elif closing.after_text and not closing.at_end:
            notes = [_only(log, closing_figures)]
        return [closing_figures], notes
    figures = list(_all_figures(log.data, segment, whole))
    is_certain = not has_head and not log.data[figures[-1].end : end].strip() if figures else True
    if len(figures) != 1 or is_certain or figures[0].sample.program is Program.SERVER:
        return figures, []
    return figures, [_only(log, figures[0])]


def _only(log: CleanLog, figures: LoggedFigures) -> str:
    span = _span(log, figures.start, figures.end)
    return f"the only figures there, in {span}, are taken for llama.cpp's own; text surrounds them"


def _all_figures(data: bytes, segment: LogSpan, whole: Sequence[Closing]) -> Iterator[LoggedFigures]:
    """Yield all figures of a segment, where nothing tells a program's own from a text's."""
    position = segment.start
    for closing in whole:
        between = list(_loose_figures(data, position, closing.start))
        yield from between
        is_timings = closing.sample.program is Program.PLAIN
        if is_timings and between and not data[between[-1].end : closing.start].strip():
            position = closing.end  # timings below a summary of lookahead's or lookup's are of that run
            continue
        log = data[position : closing.end]
        moved = replace(closing, start=closing.start - position, end=closing.end - position)
        yield LoggedFigures(closing.start, closing.end, parsing.sample_statement(log, moved))
        position = closing.end
    yield from _loose_figures(data, position, segment.end)


def _loose_figures(data: bytes, start: int, end: int) -> Iterator[LoggedFigures]:
    """Yield the requests, answers and parts of statements between whole statements."""
    part = data[start:end]
    quoted = find_fragments(part) if len(part) <= _PASTED else ()  # a captured log has whole statements
    answers = [*quoted, *find_answers(part)]
    figures = (LoggedFigures(start + first, start + last, sample) for first, last, sample in answers)
    yield from sorted([*_requests(part, start), *figures], key=lambda answer: answer.start)


def _requests(data: bytes, offset: int) -> Iterator[LoggedFigures]:
    """Yield the requests in a part of a log that begins at ``offset``, added up for each server."""
    for first, last in _request_groups(data):
        sample = parsing.sample_requests(data[first:last], parts=True)
        if sample is not None:
            yield LoggedFigures(offset + first, offset + last, parsing.with_load(data[:last], sample))


def _request_groups(data: bytes) -> list[tuple[int, int]]:
    """Return the bounds of requests with nothing but log lines between them: those of one server."""
    groups: list[tuple[int, int]] = []
    may_split = len(data) <= _PASTED and not parsing.is_server(data)  # a server's own log is one server's
    for match in parsing.find_request_lines(data):
        start = data.rfind(b"\n", 0, match.start()) + 1
        if groups:
            first, before = groups[-1]
            if not (may_split and any(map(_is_prose, lines_from(data[before:start], 0)))):
                start = first
                groups.pop()
        groups.append((start, data.find(b"\n", match.end()) + 1 or len(data)))
    return groups


def _is_prose(line: LogLine) -> bool:
    return not (line.is_blank or line.is_familiar or _LOGGED.match(line.message))


def _no_figures(data: bytes, name: str) -> LogReading:
    """Return why a log has no figures."""
    if _BENCH.search(data):
        hint = "parse reads the logs of runs; bench and tune measure drafting, which llama-bench does not"
        return LogReading(runs=(), problem=LogError("a table of llama-bench, not a log", hint))
    try:
        sample = parsing.parse(data)
    except LogError as error:
        return LogReading(runs=(), problem=error)
    sample = replace(sample, status=Status.SUMMARY_LOST) if sample.status is Status.OK else sample
    hint = (
        "pass the standard error of main, speculative, speculative-simple or server up to its end, or the "
        "answers of a server with their timings"
    )
    problem = LogError(f"the log has no figures ({sample.status.value})", hint)
    return LogReading(runs=(LoggedRun(name, sample),), problem=problem)


def _lines(log: CleanLog, start: int, end: int) -> tuple[int, int]:
    """Return the numbers of the first and the last original line of some bytes, without blank ones."""
    end = start + len(log.data[start:end].rstrip())
    start = end - len(log.data[start:end].lstrip())
    return log.number(start), log.number(max(start, end - 1))


def _span(log: CleanLog, start: int, end: int) -> str:
    first, last = _lines(log, start, end)
    return f"line {first}" if first == last else f"lines {first}-{last}"


def split(data: bytes, statements: Sequence[Closing]) -> Iterator[LogSpan]:
    """Yield the segments of a log, in order; each has at most one program's loading.

    Args:
        data: the clean log.
        statements: the closing statements in it that are whole.
    """
    start, checked = 0, 0
    seen: set[str] = set()
    fenced = is_open = done = False
    starts = [statement.start for statement in statements]
    for place, kind in _marks(data):
        done = done or bisect_left(starts, place) > bisect_left(starts, start)
        done = done or parsing.has_request(data, checked, place)
        checked = place
        # a fence ends a log that began in it; other fences are a model's
        begins = (done and (kind != "fence" or fenced)) or (kind in seen and _ONCE.match(kind))
        if begins:
            yield LogSpan(start, place, _is_headed(seen))
            start, seen, done, fenced = place, set(), False, False
        if kind == "fence":
            is_open = not is_open
        elif kind != "command":
            fenced = is_open if not _is_headed(seen) else fenced
        seen.add(kind)
    yield LogSpan(start, len(data), _is_headed(seen))


def _is_headed(seen: set[str]) -> bool:
    return bool(seen - {"command", "fence"})


def _marks(data: bytes) -> list[tuple[int, str]]:
    """Return the lines where a run may begin, in order: where, and what kind of line it is.

    Kinds are "loading", "command", "fence", and the text of a line that a run prints once.
    """
    kinds: dict[int, str] = {}
    for needle in _LOADING:
        for line in hits(data, needle):
            once = _ONCE.match(line.message)
            if line.is_familiar and (needle != _BUILD or once):
                kinds[line.start] = once[0].rstrip("0123456789") if once else "loading"
    if len(data) <= _PASTED:
        commands = (line for option in _MODEL_OPTIONS for line in hits(data, option))
        fences = {match.start(): "fence" for match in _FENCE.finditer(data)}
        kinds = fences | {line.start: "command" for line in commands if _COMMAND.match(line.message)} | kinds
    return sorted(kinds.items())


class OpenFile(Protocol):
    """An open file, in text or binary mode."""

    def read(self) -> str | bytes:
        """Return the rest of the file."""


Source = str | bytes | os.PathLike[str] | OpenFile


@overload
def parse(source: Source) -> Sample: ...
@overload
def parse(source: list[Source] | tuple[Source, ...]) -> list[Sample]: ...
def parse(source: Source | list[Source] | tuple[Source, ...]) -> Sample | list[Sample]:
    """Read the figures of runs from logs of llama.cpp of any era, as files or as pasted text.

    Quoting, indentation, Markdown, HTML, colours and other programs' prefixes do no harm. A warning says from
    which lines the figures are where that is not certain. A server's figures are totals of its requests.

    Args:
        source: a path, a text, bytes or an open file with the log of one run; or a list of them, each with
            any number of runs. A text of one line is a path if such a file exists, or if it ends as the
            names of logs do.

    Returns:
        The sample of the one run; for a list, a sample of each run, in order. A failed run has its status and
        no figures.

    Raises:
        LogError: a log cannot be read, has no output of llama.cpp, or, outside of a list, has several runs.
    """
    if isinstance(source, list | tuple):
        return [sample for part in source for sample in _samples(part)]
    samples = _samples(source)
    if len(samples) > 1:
        raise LogError(f"the log has {len(samples)} runs", "pass a list to get all of them: parse([log])")
    return samples[0]


def _samples(source: Source) -> list[Sample]:
    raw, name = _load(source)
    reading = read(raw, name)
    if reading.problem is not None and not reading.runs:
        raise LogError(f"{name}: {reading.problem.message}", reading.problem.hint)
    for note in reading.notes:
        warnings.warn(f"{name}: {note}", stacklevel=3)
    return [run.sample for run in reading.runs]


def _load(source: Source) -> tuple[bytes, str]:
    """Return the bytes of a log, and what messages call it.

    Raises:
        LogError: it cannot be read, or is of another type.
    """
    if isinstance(source, bytes):
        return source, "the text"
    if isinstance(source, str) and _is_text(source):
        return source.encode(errors="replace"), "the text"
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            return path.read_bytes(), str(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LogError(f"cannot read {path}: {reason}", "pass the path of a log, or its text") from error
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "the file"))
        try:
            content = source.read()
        except (OSError, ValueError) as error:
            raise LogError(f"cannot read {name}: {error}", "pass a file that is open for reading") from error
        if isinstance(content, str | bytes):
            return content if isinstance(content, bytes) else content.encode(errors="replace"), name
    hint = "pass a path, a text, bytes, an open file, or a list of them"
    raise LogError(f"an object of type {type(source).__name__} is not a log", hint)


def _is_text(source: str) -> bool:
    """Whether a string is a log itself, not the path of one."""
    if not source.strip() or "\n" in source or "\r" in source or len(source) > _LONGEST_PATH:
        return True
    try:
        is_file = Path(source).exists()
    except (OSError, ValueError):
        return True
    return not is_file and not (source.endswith(_FILE_NAMES) and "  " not in source)
