"""Requests to a llama-server, the raw record of its answers, and the Sample that a record shows.

The record is JSONL with arrival times, for every era that answers in JSON. Figures come from the ``timings``
of the last chunk. ``predicted_ms`` starts when the first token is complete, so ``gen_s`` is the time of all
tokens but the first.

Builds up to at least b9102 count and time all tokens of a round before they send any. If the round reaches
the requested length, they send only its first token: the figures are right, but the text is shorter.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple, Protocol, TextIO

import msgspec

from ggufspec import prompts
from ggufspec.domain import Failure, Method, Program, Round, RunSpec, Sample, Segment, SegmentCounts, Status
from ggufspec.engines import plausibility
from ggufspec.engines.engine import median_gap
from ggufspec.llama.server import AnswerEvent, Count, answers, event_text

NO_DRAFTS = {"speculative.n_max": 0}
"""What asks a llama-server that drafts for an answer without drafts, where it takes draft sizes."""

_LONGEST = 1 << 20  # tokens of an answer that no limit was asked for: more than contexts hold


def body(spec: RunSpec, *, per_request: bool, caches: bool) -> dict[str, Any]:
    """Return the request that measures a specification; samplers it does not name keep their defaults.

    Args:
        spec: what to measure.
        per_request: whether this server drafts, and takes the draft size from the request.
        caches: whether to enable the prompt cache; otherwise each prompt is evaluated completely.
    """
    asked = {} if spec.request is None else spec.request.fields
    request: dict[str, Any] = {
        **({} if "messages" in asked else {"prompt": spec.prompt.text}),
        **asked,
        "n_predict": spec.n_predict,
        "temperature": spec.sampling.temperature,
        "top_k": spec.sampling.top_k,
        "top_p": spec.sampling.top_p,
        "min_p": spec.sampling.min_p,
        "seed": _seed(spec),
        "stream": True,
        "cache_prompt": caches,
        "return_tokens": True,
        "timings_per_token": True,
        "ignore_eos": False,
    }
    if not per_request:
        return request
    if spec.drafting is None:
        return request | NO_DRAFTS
    return request | {
        "speculative.n_max": spec.drafting.n_max,
        "speculative.n_min": spec.drafting.n_min,
        "speculative.p_min": spec.drafting.p_min,
    }


def _seed(spec: RunSpec) -> int:
    """Return the seed; with synthetic acceptance, a different one for each prompt.

    Then repeats of a prompt accept the same tokens, while many prompts approach the requested rates.
    """
    if spec.drafting is None or spec.drafting.synthetic is None:
        return spec.sampling.seed
    return zlib.crc32(spec.prompt.text.encode(), spec.sampling.seed) >> 1  # the largest value means "random"


class Streams(Protocol):
    """A server that streams completions: one that was started here, or one that runs already."""

    def stream_lines(
        self, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Iterator[tuple[float, str]]:
        """Request a completion; yield the seconds since then and each line, as they arrive."""
        ...


def send(server: Streams, request: Mapping[str, Any], out: TextIO, *, timeout_s: float | None = None) -> None:
    """Request a completion and write each event of its stream to ``out`` as it arrives.

    Every line is ``{"at_s": seconds since the request was sent, "chunk": the event}``.

    Raises:
        Failure: the server died, refused the request, or took longer than ``timeout_s`` in total.
    """
    for at_s, line in server.stream_lines(request, timeout_s=timeout_s):
        event = event_text(line)
        if event is not None and event.startswith("{"):
            out.write(f'{{"at_s": {at_s:.6f}, "chunk": {event}}}\n')
        elif line:
            note(out, at_s=at_s, line=line)
        if timeout_s is not None and at_s > timeout_s:
            raise Failure(Status.TIMED_OUT, f"killed after {at_s:.0f} s")


def note(out: TextIO, **fields: object) -> None:
    """Write a line of ggufspec's own to the raw record."""
    out.write(json.dumps(fields) + "\n")


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A sample, and a sentence about a problem with it; None if there is no problem."""

    sample: Sample
    remark: str | None = None


class _NotedRun(msgspec.Struct):
    """The request: γ, the drafting method, p-min, and the load time if it was the first after a load."""

    n_draft: Count | None = None
    method: Method | None = None
    p_min: float | None = None
    load_ms: float | None = None


class _NotedRequest(msgspec.Struct):
    """What was asked of the server."""

    n_predict: int | None = None
    prompt: str = ""


class _Counters(msgspec.Struct):
    """The server's own counts of accepted tokens per position of a draft, before and after the run."""

    before: tuple[Count, ...]
    after: tuple[Count, ...]


class RecordLine(msgspec.Struct):
    """One line of a record, as ``send`` and ``note`` write it."""

    at_s: float = 0.0
    run: _NotedRun | None = None
    request: _NotedRequest | None = None
    chunk: AnswerEvent | None = None
    accepted_at: _Counters | None = None
    kept_tokens: Count | None = None  # of a later turn of a conversation
    reads_zeros: bool | None = None  # the drafter, for images
    line: str | None = None  # received, but not a JSON object


class _ArrivedEvent(NamedTuple):
    at_s: float
    event: AnswerEvent


_decoder = msgspec.json.Decoder(RecordLine)


def parse_response(record: str) -> Parsed:
    """Parse a record; a run without figures has a status other than ``OK``.

    Args:
        record: the lines of one request.
    """
    run, request = _NotedRun(), _NotedRequest()
    counters: _Counters | None = None
    kept: int | None = None
    reads_zeros: bool | None = None
    chunks: list[_ArrivedEvent] = []
    broken: str | None = None
    for text in filter(None, record.split("\n")):
        try:
            line = _decoder.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            broken = broken or answers.unreadable(error).reason
            continue
        run, counters = line.run or run, line.accepted_at or counters
        request, kept = line.request or request, line.kept_tokens if kept is None else kept
        reads_zeros = line.reads_zeros or reads_zeros
        if line.chunk is not None:
            chunks.append(_ArrivedEvent(line.at_s, line.chunk))
        elif line.line is not None and event_text(line.line) is not None:
            broken = broken or f"the server sent a line that is not JSON: {line.line[:100]}"
    empty = Sample(
        status=Status.SUMMARY_LOST,
        program=Program.SERVER,
        n_draft=run.n_draft,
        load_ms=run.load_ms,
        kept_tokens=kept,
        reads_zeros=reads_zeros,
    )
    failure = next((failure for chunk in chunks if (failure := chunk.event.failure) is not None), None)
    if failure is not None:
        return Parsed(sample=replace(empty, status=failure.status), remark=failure.reason)
    if not any(chunk.event.stop or chunk.event.finish_reason for chunk in chunks[-2:]):  # usage may follow
        return Parsed(sample=empty, remark="; ".join(filter(None, ("the answer has no end", broken))))
    if broken is not None:
        return Parsed(sample=replace(empty, status=Status.FAILED), remark=broken)
    sample = _sample(empty, chunks, request.prompt, most=request.n_predict or _LONGEST)
    if sample is None:
        return Parsed(sample=empty, remark="the answer has no usable timings")
    if _was_truncated(chunks, sample.gen_tokens, request.n_predict):
        reason = "prompt and answer do not fit into the context"
        return Parsed(sample=replace(empty, status=Status.PROMPT_TOO_LONG), remark=reason)
    contradiction = plausibility.find_contradiction(
        tokens=sample.gen_tokens or 0,
        asked=request.n_predict,
        gen_s=sample.gen_s,
        arrivals=[chunk.at_s for chunk in chunks[:-1] if chunk.event.content or chunk.event.choices],
        end_s=chunks[-1].at_s,
    )
    if contradiction is not None:
        return Parsed(sample=replace(sample, status=Status.IMPLAUSIBLE), remark=contradiction)
    needs_repetition = run.method is not None and not run.method.drafts_with_model
    if sample.n_draft and not sample.n_drafted and not (needs_repetition or run.p_min):
        reason = "the timings show no drafted tokens"
        return Parsed(sample=replace(sample, status=Status.DRAFTING_INACTIVE), remark=reason)
    return _checked(sample, counters)


def _sample(empty: Sample, chunks: Sequence[_ArrivedEvent], prompt: str, *, most: int) -> Sample | None:
    """Return the figures of a finished answer; None if the token count or the time is not a number.

    Args:
        empty: what is known of the run before.
        chunks: the events of the answer.
        prompt: what the answer continues.
        most: tokens of the longest answer that is shared out among segments; a count beyond it is not true.
    """
    final = chunks[-1].event
    timings = final.figures
    arrived = [chunk for chunk in chunks[:-1] if chunk.event.is_token]
    n, ms = timings.predicted_n, _number(timings.predicted_ms)
    if n is None or n < 0 or ms is None:
        return None
    drafted, accepted = final.draft
    reconstructed = _rounds(arrived, [1] * len(arrived), Round(drafted, accepted)) if drafted else None
    # A token that ends inside a character arrives with the next one. Then the place of each token is unknown.
    is_complete = len(arrived) == n or (
        reconstructed is not None and len(arrived) + reconstructed.unsent == n
    )
    rounds = reconstructed.rounds if is_complete and reconstructed is not None else None
    prompt_tokens = None if (timings.prompt_n or 0) < 0 else timings.prompt_n
    both = final.n_prompt
    ids = [token for chunk in arrived for token in chunk.event.tokens or ()]
    segments = _SegmentTable()
    if is_complete and arrived and (rounds is not None or not drafted):
        segments = _count_segments(arrived, [1] * len(arrived), rounds, prompt)
    elif not is_complete and n <= most:
        segments = _share_segments([*arrived, chunks[-1]], empty.n_draft, prompt)
    return replace(
        empty,
        status=Status.OK,
        prompt_tokens=prompt_tokens,
        cached_tokens=None if both is None or prompt_tokens is None else max(0, both - prompt_tokens),
        prompt_tps=_number(timings.prompt_per_second),
        gen_tokens=n,
        gen_tps=_number(timings.predicted_per_second),
        gen_s=ms / 1000,
        n_drafted=drafted or (0 if empty.n_draft else None),
        n_accepted=accepted if drafted or empty.n_draft else None,
        n_rounds=len(rounds) if rounds is not None else max(0, n - 1 - accepted),
        rounds=rounds,
        accepted_at=_accepted_by_depth(final, empty.n_draft)
        if rounds is None
        else _accepted_at(rounds, empty.n_draft),
        by_segment=segments.counts,
        segment_s=segments.seconds,
        ttft_s=arrived[0].at_s if arrived else None,
        itl_s=median_gap([chunk.at_s for chunk in arrived]) if is_complete else None,
        text=answers.write_answer(chunk.event for chunk in chunks),
        tokens=tuple(ids) if is_complete and len(ids) == len(arrived) else None,
    )


def _was_truncated(chunks: Sequence[_ArrivedEvent], tokens: int | None, asked: int | None) -> bool:
    """Return whether the context was full; in a chat, a length below what was asked shows that."""
    if any(chunk.event.finish_reason == "length" for chunk in chunks[-2:]):
        return None not in (tokens, asked) and (tokens or 0) < (asked or 0)
    return chunks[-1].event.truncated


class _ServerRounds(NamedTuple):
    rounds: tuple[Round, ...]
    unsent: int  # tokens of the last round that were not sent


def _rounds(
    arrived: Sequence[_ArrivedEvent], n_tokens: Sequence[int], total: Round, n_draft: int | None = None
) -> _ServerRounds | None:
    """Return the round of each evaluation of the target after that of the prompt.

    Every chunk of one token has the counts so far. The tokens of a round, one more than it accepted, have the
    same counts (update_slots in llama.cpp's server). So a round starts where the counts increase, and further
    tokens were evaluated without a draft: in b6170, one between any two drafts. If an answer ends inside its
    last round, accepted tokens remain unsent. None if the counts are missing or inconsistent.

    Of several tokens in one event, only the sum of their rounds is known. It is shared evenly among as many
    rounds as there are drafts of γ in it, behind the evaluations without a draft.

    Args:
        arrived: the events.
        n_tokens: how many tokens each of them has.
        total: what was drafted and accepted at the end.
        n_draft: γ, where events have several tokens.
    """
    rounds: list[Round] = []
    before, due, without = Round(0, 0), 0, 1  # the first token is that of the prompt's evaluation
    for chunk, count in zip(arrived, n_tokens, strict=True):
        now, begun = chunk.event.draft, min(due, count - without)
        opened, free = (
            Round(now.drafted - before.drafted, now.accepted - before.accepted),
            count - without - begun,
        )
        before, due, without = now, due - begun, 0
        if opened == Round(0, 0):
            rounds += [opened] * free
            continue
        if not free or not 0 <= opened.accepted <= opened.drafted:
            return None
        n_drafts = min(free, max(1, round(opened.drafted / (n_draft or opened.drafted))))
        due = max(0, opened.accepted + n_drafts - free)
        rounds += [Round(0, 0)] * (free - opened.accepted - n_drafts)
        drafted, accepted = _shared(opened.drafted, n_drafts), _shared(opened.accepted - due, n_drafts)
        accepted[-1] += due
        rounds += map(Round, drafted, accepted)
    return _ServerRounds(tuple(rounds), due) if arrived and before == total else None


def _shared(count: int, n_parts: int) -> list[int]:
    """Return a count in even parts."""
    return [count * (part + 1) // n_parts - count * part // n_parts for part in range(n_parts)]


class _SegmentTable(NamedTuple):
    counts: tuple[SegmentCounts, ...] | None = None
    seconds: tuple[float, ...] | None = None


def _share_segments(arrived: Sequence[_ArrivedEvent], n_draft: int | None, prompt: str) -> _SegmentTable:
    """Return the segments of an answer whose parser kept tokens back, as it does with those of a call.

    Each event counts the tokens so far, so it is known how many have its text; the last event has those of
    which the text never came.
    """
    counted = [0, *(chunk.event.figures.predicted_n or 0 for chunk in arrived)]
    n_tokens = [now - before for before, now in pairwise(counted)]
    if min(n_tokens[:-1], default=0) < 1 or n_tokens[-1] < 0:  # builds up to b9102 count ahead
        return _SegmentTable()
    total = arrived[-1].event.draft
    reconstructed = _rounds(arrived, n_tokens, total, n_draft) if total.drafted else None
    if total.drafted and reconstructed is None:
        return _SegmentTable()
    rounds = None if reconstructed is None else reconstructed.rounds
    return _count_segments(arrived, n_tokens, rounds, prompt)


def _count_segments(
    arrived: Sequence[_ArrivedEvent], n_tokens: Sequence[int], rounds: Sequence[Round] | None, prompt: str
) -> _SegmentTable:
    """Return what was drafted and accepted in each part of an answer, and the time that it took.

    The tokens of a round come together, so each took its share of the time since the round before. Times are
    the server's own: a client sees fast tokens late, and several at once. Without drafts, each token is a
    round.

    Args:
        arrived: the events.
        n_tokens: of each; the first token is that of the prompt's evaluation, in no round.
        rounds: of the other tokens; the last one may have tokens that were not sent.
        prompt: what the answer continues.
    """
    text = answers.AnswerText()
    pieces = [text.add(chunk.event) for chunk in arrived]
    labels = prompts.label_tokens([*pieces[:-1], pieces[-1] + text.end()], prompt, n_tokens)
    passed_ms: list[float] = []
    for chunk, count in zip(arrived, n_tokens, strict=True):
        told_ms, before_ms = _number(chunk.event.figures.predicted_ms), passed_ms[-1] if passed_ms else 0.0
        if told_ms is None:
            return _SegmentTable()
        passed_ms += [before_ms + (told_ms - before_ms) * (part + 1) / count for part in range(count)]
    tables = {name: Counter[Segment]() for name in ("tokens", "drafted", "accepted", "rounds")}
    seconds: defaultdict[Segment, float] = defaultdict(float)
    place = 1
    for drafted, accepted in rounds if rounds is not None else [Round(0, 0)] * (len(labels) - 1):
        places = labels[place : place + accepted + 1]
        if not places:
            break
        took_s = (passed_ms[place + len(places) - 1] - passed_ms[place - 1]) / 1000
        for label in places:
            tables["tokens"][label] += 1
            seconds[label] += took_s / len(places)
        taken = Counter((places + places[-1:] * accepted)[:accepted])
        tables["accepted"] += taken
        tables["drafted"] += taken
        tables["drafted"][places[-1]] += drafted - accepted
        tables["rounds"][places[-1]] += 1
        place += len(places)
    written = [label for label in Segment if label in tables["tokens"]]
    return _SegmentTable(
        tuple(SegmentCounts(label, *(table[label] for table in tables.values())) for label in written),
        tuple(round(seconds[label], 6) for label in written),
    )


def _accepted_at(rounds: Sequence[Round], n_draft: int | None) -> tuple[int, ...]:
    size = max((n_draft or 0, *(entry.drafted for entry in rounds)))
    return tuple(sum(entry.accepted > place for entry in rounds) for place in range(size))


def _accepted_by_depth(final: AnswerEvent, n_draft: int | None) -> tuple[int, ...] | None:
    """Return the server's own counts by position; None if it has none, or they contradict its total."""
    counts = {place.depth: place.draft_n_accepted for place in final.figures.draft_by_depth}
    if not counts or sum(counts.values()) != final.draft.accepted:
        return None
    return tuple(counts.get(depth, 0) for depth in range(1, max(n_draft or 0, *counts) + 1))


def _checked(sample: Sample, counters: _Counters | None) -> Parsed:
    """Compare with the server's counters per position; if they disagree, both are dropped."""
    if counters is None or sample.n_accepted is None:
        return Parsed(sample=sample)
    before, after = counters.before, counters.after
    counted = tuple(now - then for now, then in zip_longest(after, before, fillvalue=0))
    streamed = sample.accepted_at or counted
    both = [*zip_longest(streamed, counted, fillvalue=0)]
    if all(seen == told for seen, told in both) and sum(counted) == sample.n_accepted:
        most = max((place for place, count in enumerate(streamed, 1) if count), default=0)
        size = max(sample.n_draft or len(both), most)  # n-grams of a chain draft more than γ
        places = (*streamed[:size], *(0,) * (size - len(streamed)))
        return Parsed(sample=replace(sample, accepted_at=places))
    remark = f"/metrics counts {counted} accepted tokens per position, the stream {streamed}"
    unknown = replace(sample, rounds=None, accepted_at=None, by_segment=None, segment_s=None)
    return Parsed(sample=unknown, remark=remark)


def _number(value: float | None) -> float | None:
    """Return a number; None if it is negative or not finite."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None
