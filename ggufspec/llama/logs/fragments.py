"""Figures as people quote them: parts of closing statements, and the answers of llama-server.

A program's own log has whole statements, which statements.py reads. Here lines may be left out, or be in
another order: a run is a group of lines with different figures, with nothing but llama.cpp's lines between
them, whose arithmetic is right. An answer has the JSON object ``timings``, in a body, in a stream, or alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.domain import Program, Sample, Status
from ggufspec.llama.logs import statements
from ggufspec.llama.logs.lines import LogLine, lines_from

_DECODED = re.compile(f"(?:decoded|generated){statements.RATE}")  # "generated" until 2023-09
_FIGURES = statements.FIGURES | {"decoded": _DECODED}
_OTHER_FIGURES = re.compile(r"[A-Z] += *\d+|t_\w+ += .*")  # between them: lookahead's and lookup's
_MODELS = {"draft:", "target:"}
_SPEEDS = re.compile(r"\[ Prompt: (\d{1,9}\.\d) t/s \| Generation: (\d{1,9}\.\d) t/s \]")

_LONGEST_TIMINGS = 2048  # bytes of the object; llama.cpp's has some 350
# A quote within a JSON string is escaped: what a model writes cannot look like this in its own answer.
_KEYS = (re.compile(rb'(?<!\\)"predicted_n" *:'), re.compile(rb"(?<!\\)'predicted_n' *:"))  # JSON, Python
_PAIR = re.compile(rb"[\"'](\w{1,32})[\"'] *: *(-?\d{1,20}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)(?![\w.+-])")
_GOES_ON = re.compile(rb"[\"'](?:stop[\"'] *: *(?:false|False)|finish_reason[\"'] *: *(?:null|None))")
_STREAM_END = b"[DONE]"  # of a stream in OpenAI's format


class LoggedFigures(NamedTuple):
    """Figures of one run, and the bytes of the log that they are in."""

    start: int
    end: int
    sample: Sample


def find_fragments(data: bytes) -> Iterator[LoggedFigures]:
    """Yield the parts of statements in a log, in order."""
    matches: statements.Matches = {}
    start = end = 0
    of_models = False  # timings below "draft:" and "target:" are of one model, not of the run
    for line in lines_from(data, 0):
        key, match = _figure(line)
        if match is not None and key == "speeds":
            yield from _fragment(matches, start, end)
            matches = {}
            # llama-cli prints of one answer, from b7348 on, two speeds with one decimal, and no counts
            prompt_tps, gen_tps = (float(speed) or None for speed in match.groups())
            speeds = Sample(status=Status.OK, program=Program.PLAIN, prompt_tps=prompt_tps, gen_tps=gen_tps)
            yield LoggedFigures(line.start, line.end, speeds)
        elif match is not None and not (of_models and key not in _FIGURES):
            if key in matches:
                yield from _fragment(matches, start, end)
                matches = {}
            if not matches:
                start, of_models = line.start, False
            matches[key], end = match, line.end
        elif line.message.strip() in _MODELS:
            of_models = True
        elif match is None and not (line.is_blank or line.is_familiar or _OTHER_FIGURES.match(line.message)):
            yield from _fragment(matches, start, end)
            matches, of_models = {}, False
    yield from _fragment(matches, start, end)


def _figure(line: LogLine) -> tuple[str, re.Match[str] | None]:
    """Return which figure a line has, and its match."""
    message = line.message.strip()
    for key, pattern in _FIGURES.items():
        if (match := pattern.fullmatch(message)) is not None:
            # the number of a line that is cut may lack its last digits; a percentage ends with its sign
            return key, (match if line.is_complete or key == "accept" else None)
    if (match := _SPEEDS.search(message)) is not None:
        return "speeds", match
    timing = statements.find_timing(line)
    return (timing[1], timing) if timing is not None else ("", None)


def _fragment(matches: statements.Matches, start: int, end: int) -> Iterator[LoggedFigures]:
    """Yield the run with these figures, if there are any and their arithmetic is right."""
    if any(key in matches for key in _FIGURES):
        sample = statements.summary_sample(matches)
    elif "eval" in matches or "prompt eval" in matches:
        sample = statements.plain_sample(matches)
    else:
        return
    if sample is not None and (sample.gen_tps, sample.prompt_tps, sample.n_accepted) != (None, None, None):
        yield LoggedFigures(start, end, sample)


class _AnswerTimings(NamedTuple):
    start: int
    end: int
    figures: dict[str, float]
    goes_on: bool  # in an event of a stream that is not the last one

    @property
    def tokens(self) -> float:
        return self.figures["predicted_n"]


def find_answers(data: bytes) -> Iterator[LoggedFigures]:
    """Yield the answers in a text; of a stream, its last figures count."""
    held: _AnswerTimings | None = None
    for timings in _find_timings(data):
        if held is not None and not _is_same_answer(held, timings, data):
            yield from _answer(held)
        held = timings
    if held is not None:
        yield from _answer(held)


def _find_timings(data: bytes) -> Iterator[_AnswerTimings]:
    keys = next((matches for key in _KEYS if (matches := list(key.finditer(data)))), [])
    for key in keys:
        start = data.rfind(b"{", max(0, key.start() - _LONGEST_TIMINGS), key.start())
        end = data.find(b"}", key.end(), key.end() + _LONGEST_TIMINGS) + 1
        if start < 0 or not end or b"}" in data[start : key.start()] or b"{" in data[key.end() : end]:
            continue  # cut, or not this flat object
        figures = {pair[1].decode(): float(pair[2]) for pair in _PAIR.finditer(data, start, end)}
        if "predicted_n" in figures:
            event = data[data.rfind(b"\n", 0, start) + 1 : (data.find(b"\n", end) + 1 or len(data))]
            yield _AnswerTimings(start, end, figures, _GOES_ON.search(event) is not None)


def _is_same_answer(before: _AnswerTimings, timings: _AnswerTimings, data: bytes) -> bool:
    """Whether two objects are of one answer: events of a stream, the last of which may be said twice."""
    if before.figures == timings.figures:
        return True
    grows = timings.tokens >= before.tokens
    return before.goes_on and grows and _STREAM_END not in data[before.end : timings.start]


def _answer(timings: _AnswerTimings) -> Iterator[LoggedFigures]:
    """Yield the figures, if they agree with each other."""
    prompt, answer = _rate(timings.figures, "prompt"), _rate(timings.figures, "predicted")
    if answer is None:
        return
    drafted = timings.figures.get("draft_n")
    accepted = timings.figures.get("draft_n_accepted")
    if drafted is not None and not 0 <= (accepted or 0) <= drafted:
        return
    sample = Sample(
        status=Status.SUMMARY_LOST if timings.goes_on else Status.OK,
        program=Program.SERVER,
        prompt_tokens=prompt.tokens if prompt else None,
        prompt_tps=prompt.tps if prompt else None,
        gen_tokens=answer.tokens,
        gen_tps=answer.tps,
        gen_s=answer.seconds,
        n_drafted=int(drafted) if drafted is not None else None,
        n_accepted=int(accepted) if drafted is not None and accepted is not None else None,
    )
    yield LoggedFigures(timings.start, timings.end, sample)


def _rate(figures: dict[str, float], unit: str) -> statements.Rate | None:
    """Return a count, its time and its speed; None where one is missing or they contradict each other.

    Some builds leave the first token out of the speed, so it may differ by one token.
    """
    tokens, ms = figures.get(f"{unit}_n", 0.0), figures.get(f"{unit}_ms", 0.0)
    if not (1 <= tokens <= 1 << 31 and 0 < ms < math.inf):
        return None
    tps = figures.get(f"{unit}_per_second", 1000 * tokens / ms)
    # one token for the first, and 1 % because times of short answers are printed with few digits
    if not abs(tps * ms / 1000 - tokens) <= 1 + 0.01 * tokens:
        return None
    return statements.Rate(int(tokens), ms / 1000, tps)
