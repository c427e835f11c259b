"""The records of several users' requests -> a Sample: the steady window and what happened in it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from ggufspec import domain
from ggufspec.engines import plausibility
from ggufspec.engines.server import Parsed
from ggufspec.llama.server import Timings


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request. Times are seconds since the first one was sent.

    ``number`` counts the requests of all users, ``user`` the users and ``prompt`` the prompts of ``Traffic``,
    each from 0. ``arrivals`` has the time of each token, or of each event: a token that ends inside a
    character arrives with the next one. ``cpu_s`` is the processor time that the client has used so far.
    """

    number: int
    user: int
    prompt: int
    sent_s: float
    end_s: float
    cpu_s: float
    outcome: domain.RequestOutcome
    reason: str | None = None
    text: str = ""
    arrivals: tuple[float, ...] = ()
    timings: Timings | None = None
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens that arrived: the server's count of a complete answer, or else the events."""
        counted = self.timings.predicted_n if self.timings is not None else None
        return counted if counted is not None and counted >= 0 else len(self.arrivals)


def encode_record(record: RequestRecord) -> str:
    """Return a record as a line."""
    return msgspec.json.encode(record).decode() + "\n"


def decode_records(lines: Iterable[str]) -> Iterator[RequestRecord]:
    """Yield the records of lines; lines of other kinds, and a torn last line, are skipped."""
    for line in lines:
        if line.startswith(_START) and line.endswith("\n"):
            yield _decoder.decode(line)


_START = '{"number":'
_decoder = msgspec.json.Decoder(RequestRecord)


BURST_S = 0.0005
"""Seconds between two tokens below which they arrived together, as the tokens of one round do."""


class Window(NamedTuple):
    """The steady window, in seconds since the first request was sent."""

    start_s: float
    end_s: float


def find_window(requests: Sequence[RequestRecord], traffic: domain.Traffic) -> Window | None:
    """Return the time in which all users were served and none waited for the others to begin.

    It begins when every user has had an answer, and ends with the last request that counts. Until then every
    user sends further requests, so that there is no tail. Where requests arrive by themselves, it begins with
    the first one behind as many as there are slots.

    Args:
        requests: of all users.
        traffic: what was to be sent.

    Returns:
        The window; None if a user had no answer, or the last request ended before that.
    """
    if traffic.is_open:
        first = min(traffic.users, traffic.n_requests // 2)  # a short recording has fewer than slots
        started = [request.sent_s for request in requests if request.number == first]
        ended = [request.end_s for request in requests if request.number < traffic.n_requests]
        return Window(started[0], max(ended)) if started else None
    latest_first = sorted(requests, key=lambda request: -request.end_s)
    first_ends = {request.user: request.end_s for request in latest_first}  # the earliest of each user stays
    end_s = next((request.end_s for request in latest_first if request.number < traffic.n_requests), 0.0)
    if len(first_ends) < traffic.users or max(first_ends.values()) >= end_s:
        return None
    return Window(max(first_ends.values()), end_s)


def summarize(spec: domain.RunSpec, records: Sequence[RequestRecord]) -> Parsed:
    """Return the sample of a run with several users, and a sentence about failed requests.

    The run has failed if no request succeeded, or there was no steady window.

    Args:
        spec: with ``traffic``.
        records: of all requests, in the order in which they ended.
    """
    traffic = spec.traffic
    assert traffic is not None
    counting = [record for record in records if record.number < traffic.n_requests]
    sample = _sample(spec, traffic, records, counting)
    contradiction = _find_contradiction(counting, traffic.tokens_of(spec.n_predict))
    if contradiction is not None:
        return Parsed(sample=replace(sample, status=domain.Status.IMPLAUSIBLE), remark=contradiction)
    reasons = {record.outcome: record.reason for record in reversed(records) if record.reason is not None}
    failed = Counter(record.outcome for record in counting)
    del failed[domain.RequestOutcome.OK]
    if failed:
        counts = ", ".join(
            f"{n} {outcome.value}" + (f" ({reasons[outcome]})" if outcome in reasons else "")
            for outcome, n in failed.most_common()
        )
        remark = f"{failed.total()} of {len(counting)} requests failed: {counts}"
        return Parsed(sample=sample, remark=remark)
    if sample.status is not domain.Status.OK:
        reason = "no steady window: a user had no answer before the last request ended"
        return Parsed(sample=sample, remark=reason)
    return Parsed(sample=sample)


def _sample(
    spec: domain.RunSpec,
    traffic: domain.Traffic,
    records: Sequence[RequestRecord],
    counting: Sequence[RequestRecord],
) -> domain.Sample:
    """Return the figures: of all records what arrived in the window, else of those that count."""
    window = find_window(records, traffic)
    window_tokens = 0 if window is None else round(sum(tokens_within(record, window) for record in records))
    answered = [record for record in counting if record.outcome is domain.RequestOutcome.OK]
    timings = [record.timings for record in answered if record.timings is not None]
    requests = [_to_request(record, window) for record in sorted(counting, key=lambda record: record.number)]
    ttfts = [request.ttft_s for request in requests if request.is_steady and request.ttft_s is not None]
    token_s = [request.token_s for request in requests if request.is_steady and request.token_s is not None]
    gaps = [later - earlier for record in counting for earlier, later in pairwise(record.arrivals)]
    evaluated = [(told.prompt_n, told.prompt_per_second) for told in timings]
    prompts = [(n, n / rate) for n, rate in evaluated if n and n > 0 and rate]
    n_prompt, prompt_s = sum(n for n, _ in prompts), sum(seconds for _, seconds in prompts)
    drafted = sum(told.draft_n or 0 for told in timings)
    counts = [(told.predicted_n or 0, told.draft_n_accepted or 0) for told in timings]
    reports_drafts = any(told.draft_n is not None for told in timings)
    drafts = spec.drafting is not None or (spec.servers is not None and reports_drafts)
    answers = {
        record.prompt: domain.PromptAnswer(record.prompt, record.text, record.tokens)
        for record in reversed(answered)  # the first one of each prompt stays
    }
    return domain.Sample(
        status=_status(spec, counting, window_tokens, drafted),
        program=domain.Program.SERVER,
        prompt_tokens=n_prompt or None,
        prompt_tps=n_prompt / prompt_s if prompt_s else None,
        gen_tokens=sum(n for n, _ in counts),
        gen_s=None if window is None else window.end_s - window.start_s,
        n_draft=spec.draft_size,
        n_drafted=drafted if drafts else None,
        n_accepted=sum(accepted for _, accepted in counts) if drafts else None,
        n_rounds=sum(max(0, n - 1 - accepted) for n, accepted in counts),
        ttft_s=median(ttfts) if ttfts else None,
        itl_s=median(token_s) if token_s else None,
        traffic=domain.TrafficSample(
            requests=tuple(requests),
            answers=tuple(answers[prompt] for prompt in sorted(answers)),
            window_tokens=window_tokens,
            burst_share=fmean(gap < BURST_S for gap in gaps) if gaps else None,
            client_share=_client_share(records, window),
            is_saturated=is_saturated(records, traffic) if traffic.is_open else None,
        ),
    )


def _to_request(record: RequestRecord, window: Window | None) -> domain.UserRequest:
    counts, arrivals = record.timings or Timings(), record.arrivals
    duration_s = arrivals[-1] - arrivals[0] if arrivals else 0.0
    if counts.predicted_ms and len(arrivals) < record.tokens - 1:  # a call, parts of which never came
        duration_s = counts.predicted_ms / 1000
    is_ok = record.outcome is domain.RequestOutcome.OK
    return domain.UserRequest(
        prompt=record.prompt,
        outcome=record.outcome,
        is_steady=window is not None and record.sent_s >= window.start_s,
        tokens=record.tokens,
        ttft_s=round(arrivals[0] - record.sent_s, 6) if arrivals else None,
        token_s=round(duration_s / (record.tokens - 1), 9) if is_ok and record.tokens > 1 else None,
        prompt_tokens=_counted(counts.prompt_n),
        cached_tokens=_counted(counts.cache_n),
        drafted=counts.draft_n,
        accepted=counts.draft_n_accepted,
    )


def _status(
    spec: domain.RunSpec, counting: Sequence[RequestRecord], window_tokens: int, drafted: int
) -> domain.Status:
    outcomes = {record.outcome for record in counting}
    if domain.RequestOutcome.OK not in outcomes:
        all_late = outcomes == {domain.RequestOutcome.TIMED_OUT}
        return domain.Status.TIMED_OUT if all_late else domain.Status.FAILED
    if any(record.truncated for record in counting if record.outcome is domain.RequestOutcome.OK):
        return domain.Status.PROMPT_TOO_LONG
    if not window_tokens:
        return domain.Status.FAILED
    if spec.drafter is not None and not drafted and not (spec.drafting and spec.drafting.p_min):
        return domain.Status.DRAFTING_INACTIVE
    return domain.Status.OK


def _find_contradiction(counting: Sequence[RequestRecord], asked: Sequence[int]) -> str | None:
    """Return the first contradiction of a server's account with what its clients saw."""
    for record in counting:
        ms = record.timings.predicted_ms if record.timings is not None else None
        contradiction = plausibility.find_contradiction(
            tokens=record.tokens,
            asked=asked[record.prompt],
            gen_s=None if ms is None else ms / 1000,
            arrivals=record.arrivals,
            end_s=record.end_s - record.sent_s,
        )
        if contradiction is not None and record.outcome is domain.RequestOutcome.OK:
            return contradiction
    return None


def _counted(tokens: int | None) -> int | None:
    """Return a count; llama.cpp writes a negative number where it has not counted."""
    return None if tokens is None or tokens < 0 else tokens


def is_saturated(requests: Sequence[RequestRecord], traffic: domain.Traffic) -> bool:
    """Return whether requests arrived faster than they were answered, so that they piled up.

    At each arrival the requests are counted that have not ended. They pile up if in the last third of the
    arrivals there are on average more than the server has slots, and half as many again as in the first.
    """
    counting = sorted(request.sent_s for request in requests if request.number < traffic.n_requests)
    ends = sorted(request.end_s for request in requests)
    waiting = [
        place - bisect_right(ends, sent_s)  # those that were sent before, less those that have ended
        for place, sent_s in enumerate(counting)
    ]
    third = len(waiting) // 3
    if not third:
        return False
    first, last = fmean(waiting[:third]), fmean(waiting[-third:])
    return last > traffic.users and last > 1.5 * first


def tokens_within(record: RequestRecord, window: Window) -> float:
    """Return how many of a request's tokens arrived in a window, its start excluded.

    Where fewer events arrived than tokens, each event counts for several.
    """
    if not record.arrivals:
        return 0.0
    inside = bisect_right(record.arrivals, window.end_s) - bisect_right(record.arrivals, window.start_s)
    return inside * record.tokens / len(record.arrivals)


def _client_share(records: Sequence[RequestRecord], window: Window | None) -> float | None:
    """Return the client's processor time over the window, from the records that ended at its ends."""
    if window is None:
        return None
    ended = sorted((request.end_s, request.cpu_s) for request in records)
    times = [end_s for end_s, _ in ended]
    first, last = ended[bisect_left(times, window.start_s)], ended[bisect_right(times, window.end_s) - 1]
    return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else None
