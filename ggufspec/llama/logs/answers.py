"""Figures in the answers of llama-server: the JSON object ``timings``, in a body, in a stream, or alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.domain import Program, Sample, Status

_LONGEST = 2048  # bytes of the object; llama.cpp's has some 350
# A quote within a JSON string is escaped: what a model writes cannot look like this in its own answer.
_KEYS = (re.compile(rb'(?<!\\)"predicted_n" *:'), re.compile(rb"(?<!\\)'predicted_n' *:"))  # JSON, Python
_PAIR = re.compile(rb"[\"'](\w{1,32})[\"'] *: *(-?\d[\d.eE+-]{0,30})")
_GOES_ON = re.compile(rb"[\"'](?:stop[\"'] *: *(?:false|False)|finish_reason[\"'] *: *(?:null|None))")
_END = b"[DONE]"  # of a stream in OpenAI's format


class AnswerFigures(NamedTuple):
    """The figures of one answer, and where they are."""

    start: int
    end: int
    sample: Sample


class _AnswerTimings(NamedTuple):
    start: int
    end: int
    figures: dict[str, float]
    goes_on: bool  # in an event of a stream that is not the last one

    @property
    def tokens(self) -> float:
        return self.figures["predicted_n"]


def find_answers(data: bytes) -> Iterator[AnswerFigures]:
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
        start = data.rfind(b"{", max(0, key.start() - _LONGEST), key.start())
        end = data.find(b"}", key.end(), key.end() + _LONGEST) + 1
        if start < 0 or not end or b"}" in data[start : key.start()] or b"{" in data[key.end() : end]:
            continue  # cut, or not this flat object
        figures = {}
        for pair in _PAIR.finditer(data, start, end):
            try:
                figures[pair[1].decode()] = float(pair[2])
            except ValueError:
                continue
        if "predicted_n" in figures:
            event = data[data.rfind(b"\n", 0, start) + 1 : (data.find(b"\n", end) + 1 or len(data))]
            yield _AnswerTimings(start, end, figures, _GOES_ON.search(event) is not None)


def _is_same_answer(before: _AnswerTimings, timings: _AnswerTimings, data: bytes) -> bool:
    """Whether two objects are of one answer: events of a stream, the last of which may be said twice."""
    if before.figures == timings.figures:
        return True
    grows = timings.tokens >= before.tokens
    return before.goes_on and grows and _END not in data[before.end : timings.start]


def _answer(timings: _AnswerTimings) -> Iterator[AnswerFigures]:
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
    yield AnswerFigures(timings.start, timings.end, sample)


class _TokenRate(NamedTuple):
    tokens: int
    seconds: float
    tps: float


def _rate(figures: dict[str, float], unit: str) -> _TokenRate | None:
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
    return _TokenRate(int(tokens), ms / 1000, tps)
