"""The raw record of a llama-server's answer -> a Sample: pure, for every era that answers in JSON.

The record is JSONL, see request.py. Figures come from the last chunk's ``timings``: ``predicted_ms`` begins
when the first token is there, so ``gen_s`` is the time of all tokens but that one.

Builds up to b9102 at least count and time a round's tokens together before they send any, and stop at the
first one where the round completes what was asked for. The figures are right there, the text ends earlier.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import msgspec

from ggufspec.domain import Method, Program, Round, Sample, Status
from ggufspec.engines.server.events import Count, Event, event_text, unreadable


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A sample, and what is wrong or doubtful about it in a sentence; None for a good one."""

    sample: Sample
    remark: str | None = None


class _Run(msgspec.Struct):
    """What was asked: γ, the method and, after a load, its time."""

    n_draft: Count | None = None
    method: str | None = None
    load_ms: float | None = None


class _Counters(msgspec.Struct):
    """The server's own counts of accepted tokens per position of a draft, before and after the run."""

    before: tuple[Count, ...]
    after: tuple[Count, ...]


class _Line(msgspec.Struct):
    """One line of a record, as ``request.send`` and ``note`` write it."""

    at_s: float = 0.0
    run: _Run | None = None
    chunk: Event | None = None
    accepted_at: _Counters | None = None
    line: str | None = None  # what came and is not an object


class _Chunk(NamedTuple):
    at_s: float
    event: Event


_decoder = msgspec.json.Decoder(_Line)


def parse_response(record: str) -> Parsed:
    """Return what a record says; a run without numbers has another status than ``OK``.

    Args:
        record: the lines of one request.
    """
    run = _Run()
    counters: _Counters | None = None
    chunks: list[_Chunk] = []
    broken: str | None = None
    for text in filter(None, record.split("\n")):
        try:
            line = _decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            broken = broken or unreadable(error).reason
            continue
        run, counters = line.run or run, line.accepted_at or counters
        if line.chunk is not None:
            chunks.append(_Chunk(line.at_s, line.chunk))
        elif line.line is not None and event_text(line.line) is not None:
            broken = broken or f"the server sent what is not JSON: {line.line[:100]}"
    empty = Sample(
        status=Status.SUMMARY_LOST, program=Program.SERVER, n_draft=run.n_draft, load_ms=run.load_ms
    )
    failure = next((failure for chunk in chunks if (failure := chunk.event.failure) is not None), None)
    if failure is not None:
        return Parsed(sample=replace(empty, status=failure.status), remark=failure.reason)
    if not chunks or not chunks[-1].event.stop:
        return Parsed(sample=empty, remark="; ".join(filter(None, ("the answer has no end", broken))))
    if broken is not None:
        return Parsed(sample=replace(empty, status=Status.FAILED), remark=broken)
    sample = _sample(empty, chunks)
    if sample is None:
        return Parsed(sample=empty, remark="the answer has no usable timings")
    if chunks[-1].event.truncated:
        reason = "prompt and answer do not fit into the context"
        return Parsed(sample=replace(empty, status=Status.PROMPT_TOO_LONG), remark=reason)
    drafts_always = run.method in (None, Method.DRAFT_MODEL)  # others only where a text repeats itself
    if sample.n_draft and not sample.n_drafted and drafts_always:
        reason = "the timings count no drafted token"
        return Parsed(sample=replace(sample, status=Status.DRAFTING_INACTIVE), remark=reason)
    return _checked(sample, counters)


def _sample(empty: Sample, chunks: Sequence[_Chunk]) -> Sample | None:
    """Return the figures of a finished answer; None where the ones that matter are no numbers."""
    final = chunks[-1].event
    timings = final.figures
    arrived = [chunk for chunk in chunks[:-1] if chunk.event.content is not None]
    n, ms = timings.predicted_n, _number(timings.predicted_ms)
    if n is None or n < 0 or ms is None:
        return None
    drafted, accepted = final.draft
    known = _rounds(arrived, Round(drafted, accepted)) if drafted else None
    # A token that ends inside of a character arrives without a chunk of its own: places are unknown then.
    whole = len(arrived) == n or (known is not None and len(arrived) + known.unsent == n)
    rounds = known.rounds if whole and known is not None else None
    return replace(
        empty,
        status=Status.OK,
        prompt_tokens=None if (timings.prompt_n or 0) < 0 else timings.prompt_n,
        prompt_tps=_number(timings.prompt_per_second),
        gen_tokens=n,
        gen_tps=_number(timings.predicted_per_second),
        gen_s=ms / 1000,
        n_drafted=drafted or (0 if empty.n_draft else None),
        n_accepted=accepted if drafted or empty.n_draft else None,
        n_rounds=len(rounds) if rounds is not None else max(0, n - 1 - accepted),
        rounds=rounds,
        accepted_at=None if rounds is None else _accepted_at(rounds, empty.n_draft),
        ttft_s=arrived[0].at_s if arrived else None,
        itl_s=_median_gap([chunk.at_s for chunk in arrived]) if whole else None,
        text="".join(chunk.event.content or "" for chunk in chunks),
        tokens=_tokens(arrived) if whole else None,
    )


class _Rounds(NamedTuple):
    rounds: tuple[Round, ...]
    unsent: int  # tokens of the last round that an answer's end kept back


def _rounds(arrived: Sequence[_Chunk], total: Round) -> _Rounds | None:
    """Return what each evaluation of the target after the prompt's own verified.

    Every chunk of one token carries the counts so far, and a round's tokens, one more than it accepted, share
    them (update_slots in llama.cpp's server). So counts that have grown open a round, and a token beyond
    the round's own was evaluated without a draft: in b6170, one such between any two drafts. An answer
    that ends inside of its last round leaves accepted tokens unsent. None where the counts do not add up,
    or chunks do not carry them.
    """
    rounds: list[Round] = []
    if not arrived or arrived[0].event.draft != Round(0, 0):
        return None
    before, due = arrived[0].event.draft, 0
    for chunk in arrived[1:]:
        now = chunk.event.draft
        if now != before:
            opened = Round(now.drafted - before.drafted, now.accepted - before.accepted)
            if due or not 0 <= opened.accepted <= opened.drafted:
                return None
            rounds.append(opened)
            before, due = now, opened.accepted
        elif due:
            due -= 1
        else:
            rounds.append(Round(0, 0))
    return _Rounds(tuple(rounds), due) if before == total else None


def _accepted_at(rounds: Sequence[Round], n_draft: int | None) -> tuple[int, ...]:
    size = max((n_draft or 0, *(one.drafted for one in rounds)))
    return tuple(sum(one.accepted > place for one in rounds) for place in range(size))


def _checked(sample: Sample, counters: _Counters | None) -> Parsed:
    """Compare with the server's own counters per position; where they disagree, neither is believed."""
    if counters is None or sample.n_accepted is None:
        return Parsed(sample=sample)
    before, after = counters.before, counters.after
    counted = tuple(
        count - (before[place] if place < len(before) else 0) for place, count in enumerate(after)
    )
    own = sample.accepted_at or counted
    size = max(len(own), len(counted))
    agree = _padded(own, size) == _padded(counted, size) and sum(counted) == sample.n_accepted
    if agree:
        return Parsed(sample=replace(sample, accepted_at=_padded(own, sample.n_draft or size)))
    remark = f"/metrics counts {counted} accepted tokens per position, the stream {own}"
    return Parsed(sample=replace(sample, rounds=None, accepted_at=None), remark=remark)


def _padded(counts: Sequence[int], size: int) -> tuple[int, ...]:
    return (*counts[:size], *(0,) * (size - len(counts)))


def _tokens(arrived: Sequence[_Chunk]) -> tuple[int, ...] | None:
    ids = [token for chunk in arrived for token in chunk.event.tokens or ()]
    return tuple(ids) if len(ids) == len(arrived) else None


def _median_gap(times: Sequence[float]) -> float | None:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return statistics.median(gaps) if gaps else None


def _number(value: float | None) -> float | None:
    """Return a finite number that is not negative."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None
