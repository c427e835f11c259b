"""The closing statement of a log: a drafting program's summary, or a plain program's timings.

Drafting programs end with a summary and two blocks of timings, plain programs with one block. Generated text
may contain look-alikes. A statement counts only if its lines are in order, have the style of the log, and its
arithmetic is right. Of several such statements, the program's own is followed only by lines of llama.cpp.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ggufspec.domain import Program, Sample, Status
from ggufspec.llama.logs.lines import LogLine, hits, lines_before, lines_from
from ggufspec.llama.logs.rounds import Clock

NUMBER = r"(\d{1,12}(?:\.\d{1,6})?|inf|-?nan)"
COUNT = r"(\d{1,12})"
RATE = rf" +{COUNT} tokens in +{NUMBER} seconds, speed: +{NUMBER} t/s *"
FIGURES = {
    "encoded": re.compile(f"encoded{RATE}$"),
    "decoded": re.compile(f"decoded{RATE}"),
    "n_draft": re.compile(rf"n_draft += *{COUNT}"),
    "n_predict": re.compile(rf"n_predict += *{COUNT}"),
    "n_drafted": re.compile(rf"n_drafted += *{COUNT}"),
    "n_accept": re.compile(rf"n_accept += *{COUNT}"),
    "accept": re.compile(rf"accept += *{NUMBER}%"),
}
"""The lines of a summary that carry numbers, in order."""
_SUMMARY = {**FIGURES, "draft": re.compile("draft:"), "target": re.compile("target:")}
_ORDER = tuple(_SUMMARY)
_NUMBERS = len(FIGURES)  # how many of its lines have a number
_TIMING = re.compile(
    r"(?:llama_print_timings|llama_perf\w*_print|common_perf_print): +"
    r"(load|sample|sampling|samplers|prompt eval|eval|total|unaccounted) time = +"
    rf"(\d{{1,12}}(?:\.\d{{1,6}})?) ms(?: / +{COUNT} (?:runs|tokens) *"
    rf"(?:\( *\S+ ms per token, +{NUMBER} tokens per second\))?)?"
)
_TORN = re.compile(  # the beginning of a line of a statement, or of its prefix
    r"(?:d(?:e|r|$)|n(?:_|$)|a(?:c|$)|t(?:a|$)|l(?:l|$)|c(?:o|$)|[\d.]+ ?[IWED]?$|[IWED]$)"
)
_BLOCK = {"load", "prompt eval", "eval", "total"}
_LONGEST = 200  # lines of a statement and what follows it; further lines are of another run
_TAIL_BYTES = 1 << 16  # searched first for a statement
_HEAD_BYTES, _HEAD_LINES = 1 << 16, 12  # the first lines show the style of a log
_EARLY = ("ggml_", "load_backend", "warning")  # logged before prefixes are set up


Matches = dict[str, re.Match[str]]
"""Lines of a statement, by what each of them tells."""


class Rate(NamedTuple):
    """Tokens, seconds and tokens/s of one line."""

    tokens: int | None
    seconds: float
    tps: float

    @property
    def finite_tps(self) -> float | None:
        """The printed rate; None if the program divided by zero."""
        return self.tps if math.isfinite(self.tps) else None

    def agrees(self, half_digit: float) -> bool:
        """Whether the rate follows from tokens and seconds, which are rounded to ``half_digit``."""
        if self.tokens is None or not math.isfinite(self.tps):
            return self.seconds <= half_digit
        least = self.tokens / (self.seconds + half_digit)
        most = self.tokens / (self.seconds - half_digit) if self.seconds > half_digit else math.inf
        return least * 0.9999 - 0.01 <= self.tps <= most * 1.0001 + 0.01


NO_RATE = Rate(None, 0.0, math.nan)


@dataclass(frozen=True, kw_only=True)
class Closing:
    """A closing statement: its position and its figures."""

    start: int
    end: int
    complete: bool  # has everything that the program prints at its end
    at_end: bool  # only lines of llama.cpp follow
    after_text: bool
    prefixed: bool
    sample: Sample
    target: Clock | None = None  # drafting programs: the timers of both models
    drafter: Clock | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has all figures; the timings of the two models may be missing."""
        return self.sample.status is not Status.SUMMARY_LOST


def find_closing(data: bytes, program: Program | None) -> Closing | None:
    """Return the program's own closing statement, or None.

    Args:
        data: the complete log.
        program: the program that wrote it, if known.
    """
    for start in (max(0, len(data) - _TAIL_BYTES), 0):
        summaries, blocks = [], []
        if program is not Program.PLAIN:
            summaries = _scan(data, start, b"encoded ", _read_summary)
        if program in (None, Program.PLAIN):
            blocks = _scan(data, start, b" load time = ", _read_block)
        closings = _outermost(summaries, blocks)
        prefixed = _is_prefixed(data, closings) if closings else None
        closing = _choose([closing for closing in closings if prefixed in (None, closing.prefixed)])
        if start == 0 or (closing is not None and closing.complete and closing.at_end):
            return closing  # nothing before it could be chosen instead
    return None


def find_statements(data: bytes) -> list[Closing]:
    """Return all statements whose arithmetic is right, in order, whether they are a program's own or text."""
    summaries = _scan(data, 0, b"encoded ", _read_summary)
    return _outermost(summaries, _scan(data, 0, b" load time = ", _read_block))


def _scan(
    data: bytes, start: int, needle: bytes, read: Callable[[bytes, LogLine], Closing | None]
) -> list[Closing]:
    """Return the statements that ``read`` finds at lines with a needle; no line is read twice."""
    closings: list[Closing] = []
    for line in hits(data, needle, start=start):
        closing = read(data, line) if not closings or line.start >= closings[-1].end else None
        if closing is not None:
            closings.append(closing)
    return closings


def _outermost(summaries: list[Closing], blocks: list[Closing]) -> list[Closing]:
    """Return all statements in order, without timings that are part of a drafting program's statement."""
    closings: list[Closing] = []
    covered = 0
    for closing in sorted(summaries + blocks, key=lambda closing: closing.start):
        if closing.start >= covered:
            closings.append(closing)
            covered = closing.end
    return closings


def _choose(closings: list[Closing]) -> Closing | None:
    """Return the program's own statement; the others are part of generated text.

    In one stream the text precedes the statement, so the program's own is the last one. Text follows it only
    if stdout was appended to stderr; then the statement directly follows other lines of the program.
    """
    complete = [closing for closing in closings if closing.complete]
    last = [closing for closing in complete if closing.at_end][-1:]
    after_log = [closing for closing in complete if not closing.after_text][:1]
    torn = [closing for closing in closings if closing.at_end][-1:]
    return next(iter(last + after_log + complete[-1:] + torn), None)


def _is_prefixed(data: bytes, closings: list[Closing]) -> bool | None:
    """Return whether most of the log's first lines are prefixed; None if there are only statements."""
    style: list[bool] = []
    statements = iter(closings)
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


def _read_summary(data: bytes, first: LogLine) -> Closing | None:
    """Return the drafting summary that starts at a line; None if it is inconsistent."""
    figures: Matches = {}
    target: Matches = {}
    drafter: Matches = {}
    at_end, end = True, first.end
    for number, line in enumerate(lines_from(data, first.start)):
        match = _match_next(line, first, len(figures))
        timing = find_timing(line)
        if match:
            figures[_ORDER[len(figures)]] = match
        elif timing and len(figures) > _NUMBERS:
            # the drafter's block can come last (b8643, b9102)
            is_drafters = "target" not in figures or timing[1] in target
            (drafter if is_drafters else target).setdefault(timing[1], timing)
        elif number > _LONGEST or not (line.is_blank or _is_aftermath(line, len(figures))):
            at_end = not line.is_complete and _TORN.match(line.message) is not None
            break
        elif timing and len(figures) == _NUMBERS:
            at_end = False  # the timings are a plain program's, and the summary is part of its text
            break
        end = line.end
    load_ms = float(target["load"][2]) if "load" in target else None
    sample = summary_sample(figures, load_ms) if figures else None
    if sample is None:
        return None
    return Closing(
        start=first.start,
        end=end,
        complete="target" in figures,
        at_end=at_end,
        after_text=_follows_text(_line_before(data, first.start)),
        prefixed=first.prefixed,
        sample=sample,
        target=_clock(target),
        drafter=_clock(drafter),
    )


def _clock(block: Matches) -> Clock | None:
    """Return the timer in a block of timings; None if one of its two lines is missing."""
    lines = [block.get("prompt eval"), block.get("eval")]
    timings = [timing for timing in lines if timing is not None and timing[3]]
    if len(timings) < len(lines):
        return None
    spent = [(int(timing[3]), float(timing[2]) / 1000) for timing in timings]
    return Clock(
        tokens=sum(tokens for tokens, seconds in spent if seconds),  # 0 tokens are printed as 1
        seconds=sum(seconds for _, seconds in spent),
        complete=not timings[0][0].startswith("common_perf_print"),
    )


def _is_aftermath(line: LogLine, n_matched: int) -> bool:
    """Whether a line may occur between or after the timings that follow a summary's numbers."""
    is_next_run = _SUMMARY["encoded"].search(line.message) is not None
    return n_matched >= _NUMBERS and line.is_familiar and not is_next_run


def _match_next(line: LogLine, first: LogLine, n_matched: int) -> re.Match[str] | None:
    """Return the match of a line if it is the next one of a summary."""
    if n_matched == len(_ORDER) or line.is_text or line.prefixed != first.prefixed:
        return None
    if not line.is_complete and n_matched < _ORDER.index("accept"):
        return None  # a number may lack its last digits
    pattern = _SUMMARY[_ORDER[n_matched]]
    # only the first line can follow text: the others follow a newline of the program
    return pattern.fullmatch(line.message) if n_matched else pattern.search(line.message)


def summary_sample(figures: Matches, load_ms: float | None = None) -> Sample | None:
    """Return the figures of a summary; None if they are inconsistent.

    Args:
        figures: the matches of its lines, by their names in ``FIGURES``; any may be missing.
        load_ms: the milliseconds of the target's load.
    """
    prompt, answer = (
        Rate(int(match[1]), float(match[2]), float(match[3])) if match else NO_RATE
        for match in (figures.get("encoded"), figures.get("decoded"))
    )
    n_draft, n_predict, n_drafted, n_accepted = (
        int(figures[name][1]) if name in figures else None
        for name in ("n_draft", "n_predict", "n_drafted", "n_accept")
    )
    percent = float(figures["accept"][1]) if "accept" in figures else None
    if not (prompt.agrees(half_digit=0.0005) and answer.agrees(half_digit=0.0005)):
        return None
    if None not in (n_predict, answer.tokens) and n_predict != answer.tokens:
        return None
    if n_accepted is not None and n_drafted is not None and not _fits_counts(n_accepted, n_drafted, percent):
        return None
    is_whole = None not in (percent, answer.tokens, n_drafted, n_accepted)
    status = Status.DRAFTING_INACTIVE if n_drafted == 0 else Status.OK
    return Sample(
        status=status if is_whole else Status.SUMMARY_LOST,
        prompt_tokens=prompt.tokens,
        prompt_tps=prompt.finite_tps,
        gen_tokens=answer.tokens,
        gen_tps=answer.finite_tps,
        gen_s=answer.seconds or None,
        n_draft=n_draft,
        n_drafted=n_drafted,
        n_accepted=n_accepted,
        load_ms=load_ms,
    )


def _fits_counts(n_accepted: int, n_drafted: int, percent: float | None) -> bool:
    """Whether the printed percentage, if there is one, agrees with the counts."""
    if n_accepted > n_drafted or percent is None:
        return n_accepted <= n_drafted
    if not n_drafted:
        return math.isnan(percent)
    # three decimals of a 32-bit quotient are printed: off by some 0.0005, and rounded once more where quoted
    return abs(percent - 100 * n_accepted / n_drafted) < 0.002


def _read_block(data: bytes, first: LogLine) -> Closing | None:
    """Return the plain program's timings around a `load time` line; None if they are inconsistent."""
    seen: Matches = {}
    start, end, at_end = first.start, first.end, True
    if first.is_text or find_timing(first) is None:
        return None
    for line in islice(lines_before(data, first.start), 2):
        timing = find_timing(line)
        if timing is None or not timing[1].startswith("sampl") or line.prefixed != first.prefixed:
            break
        seen[timing[1]], start = timing, line.start
    before = _line_before(data, start)
    if before is not None and before.message in {"draft:", "target:"}:
        return None  # a part of a drafting program's statement
    for number, line in enumerate(lines_from(data, first.start)):
        timing = find_timing(line)
        if timing and timing[1] not in seen and not line.is_text and line.prefixed == first.prefixed:
            seen[timing[1]] = timing
        elif timing or number > _LONGEST or not (line.is_blank or line.is_familiar):
            at_end = False
            break
        end = line.end
    sample = plain_sample(seen)
    if sample is None:
        return None
    return Closing(
        start=start,
        end=end,
        complete=sample.status is Status.OK,
        at_end=at_end,
        after_text=_follows_text(before),
        prefixed=first.prefixed,
        sample=sample,
    )


def find_timing(line: LogLine) -> re.Match[str] | None:
    """Return the match of a line of timings: what was timed, ms, tokens, tokens/s; None for other lines."""
    return _TIMING.search(line.message) if " time = " in line.message else None


def plain_sample(seen: Matches) -> Sample | None:
    """Return the figures of a plain program's timings; None if they are inconsistent."""
    prompt, answer = (
        Rate(int(timing[3]), float(timing[2]) / 1000, float(timing[4])) if timing and timing[4] else NO_RATE
        for timing in (seen.get("prompt eval"), seen.get("eval"))
    )
    if not (prompt.agrees(half_digit=0.000005) and answer.agrees(half_digit=0.000005)):
        return None
    sampling = seen.get("sampling") or seen.get("sample")
    return Sample(
        status=Status.OK if seen.keys() >= _BLOCK else Status.SUMMARY_LOST,
        program=Program.PLAIN,
        # 0 evaluations are printed as "0.00 ms / 1 runs"
        prompt_tokens=prompt.tokens if prompt.seconds else None,
        prompt_tps=prompt.finite_tps,
        gen_tokens=answer.tokens if answer.seconds else None,
        gen_tps=answer.finite_tps,
        gen_s=answer.seconds or None,
        sampling_s=float(sampling[2]) / 1000 if sampling else None,
        load_ms=float(seen["load"][2]) if "load" in seen else None,
    )


def _follows_text(before: LogLine | None) -> bool:
    """Whether a statement follows text, not lines of llama.cpp."""
    return before is not None and not before.is_familiar


def _line_before(data: bytes, start: int) -> LogLine | None:
    return next((line for line in lines_before(data, start) if not line.is_blank), None)
