"""Parts of closing statements, as people quote them: lines left out, or in another order.

A program's own log has whole statements, which statements.py reads. Here a run is a group of lines with
different figures, with nothing but llama.cpp's lines between them, whose arithmetic is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ggufspec.domain import Program, Sample, Status
from ggufspec.llama.logs.lines import LogLine, lines_from
from ggufspec.llama.logs.statements import (
    COUNT,
    NO_RATE,
    NUMBER,
    Rate,
    drafting_sample,
    find_timing,
    plain_sample,
)

_RATE = rf" +{COUNT} tokens in +{NUMBER} seconds, speed: +{NUMBER} t/s *"
_FIGURES = {
    "encoded": re.compile(f"encoded{_RATE}"),
    "decoded": re.compile(f"(?:decoded|generated){_RATE}"),  # "generated" until September 2023
    "n_draft": re.compile(rf"n_draft += *{COUNT}"),
    "n_predict": re.compile(rf"n_predict += *{COUNT}"),
    "n_drafted": re.compile(rf"n_drafted += *{COUNT}"),
    "n_accept": re.compile(rf"n_accept += *{COUNT}"),
    "accept": re.compile(rf"accept += *{NUMBER}%"),
}
_COUNTS = ("n_draft", "n_predict", "n_drafted", "n_accept")
_OTHER_FIGURES = re.compile(
    r"[A-Z] += *\d+|t_\w+ += .*"
)  # between them in lookahead's and lookup's summaries
_MODELS = {"draft:", "target:"}
_SPEEDS = re.compile(r"\[ Prompt: (\d{1,9}\.\d) t/s \| Generation: (\d{1,9}\.\d) t/s \]")

_Matches = dict[str, re.Match[str]]


class Fragment(NamedTuple):
    """Some figures of one run, and where they are."""

    start: int
    end: int
    sample: Sample


def find_fragments(data: bytes) -> Iterator[Fragment]:
    """Yield the parts of statements in a log, in order."""
    matches: _Matches = {}
    start = end = 0
    of_models = False  # timings below "draft:" and "target:" are of one model, not of the run
    for line in lines_from(data, 0):
        key, match = _figure(line)
        if match is not None and key == "speeds":
            yield from _fragment(matches, start, end)
            matches = {}
            yield Fragment(line.start, line.end, _speeds_sample(match))
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
    timing = find_timing(line)
    return (timing[1], timing) if timing is not None else ("", None)


def _fragment(matches: _Matches, start: int, end: int) -> Iterator[Fragment]:
    """Yield the run with these figures, if there are any and their arithmetic is right."""
    if any(key in matches for key in _FIGURES):
        sample = _summary_sample(matches)
    elif "eval" in matches or "prompt eval" in matches:
        sample = plain_sample(matches)
    else:
        return
    if sample is not None and (sample.gen_tps, sample.prompt_tps, sample.n_accepted) != (None, None, None):
        yield Fragment(start, end, sample)


def _summary_sample(matches: _Matches) -> Sample | None:
    """Return the figures of a summary's lines; None if they are inconsistent."""
    rates = [
        Rate(int(match[1]), float(match[2]), float(match[3])) if match else NO_RATE
        for match in (matches.get("encoded"), matches.get("decoded"))
    ]
    counts = [int(matches[key][1]) if key in matches else None for key in _COUNTS]
    percents = [float(matches["accept"][1])] if "accept" in matches else []
    return drafting_sample(rates, counts, percents)


def _speeds_sample(match: re.Match[str]) -> Sample:
    """Return what llama-cli prints of one answer from b7348 on: two speeds with one decimal, no counts."""
    return Sample(
        status=Status.OK,
        program=Program.PLAIN,
        prompt_tps=float(match[1]) or None,
        gen_tps=float(match[2]) or None,
    )
